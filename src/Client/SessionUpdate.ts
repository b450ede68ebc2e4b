/** What a subscriber to a session receives. */
import type { Conversation } from "./Conversation/Conversation.ts"
import type { Position, Session, SessionEvent } from "./SessionModel.ts"

/** An update for a subscriber. */
export type SessionUpdate =
  | { readonly type: "event"; readonly event: SessionEvent; readonly position: Position }
  /** The conversation up to a position, if it is asked for. It replaces an earlier one; the events after it follow. */
  | { readonly type: "conversation"; readonly conversation: Conversation; readonly position: Position }
  /** All existing events are delivered; later ones are new. */
  | { readonly type: "synced"; readonly session: Session; readonly position: Position }
  /** The history was replaced. Discard what was derived from the old one; all events of the new one follow. */
  | { readonly type: "reset"; readonly epoch: string }
  /** Events after `after` are no longer kept. All events that are kept follow. */
  | { readonly type: "trimmed"; readonly after: number }
