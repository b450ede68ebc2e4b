/** The data of the gateway as plain types. A test compares them with the schemas of the contract. */
import type { Conversation } from "./Conversation/Conversation.ts"
import type { SessionEvent, SessionState } from "./Conversation/SessionEvent.ts"

export type * from "./Conversation/SessionEvent.ts"

/** A session; times are epoch milliseconds. */
export interface Session {
  readonly id: string
  readonly tenant: string
  readonly agentType: string
  /** Empty until the session has a title. */
  readonly title: string
  readonly state: SessionState
  /** The instance of the platform, or `null` if there is none. */
  readonly instanceId: string | null
  readonly createdAt: number
  readonly updatedAt: number
  /** Identifies the history. It changes only when the history is lost or reset. */
  readonly epoch: string
  /** The `seq` of the newest event, or 0. */
  readonly headSeq: number
  /** When the newest event was received; absent without events. */
  readonly lastEventAt?: number
  /** Whether a turn is in progress. */
  readonly running?: boolean
  /** Whether the agent waits for a person: for an answer or an approval. */
  readonly waiting?: boolean
  /** Whether the last turn failed, or the session. */
  readonly failed?: boolean
  /** The names of lost secrets; `start` must provide them again. */
  readonly missingSecrets?: ReadonlyArray<string>
  /** Other lost configuration; `start` must provide it again. */
  readonly missingConfiguration?: ReadonlyArray<"environment" | "deployment">
}

/** A file or a directory of a workspace. */
export interface FileEntry {
  readonly path: string
  readonly type?: "file" | "directory"
  /** Bytes. */
  readonly size?: number
  readonly iteration?: number
  readonly timestamp?: number
  readonly hash?: string
}

/** A version of a file. */
export interface FileIteration {
  readonly iteration: number
  readonly timestamp: number
  /** Bytes. */
  readonly size: number
  readonly hash: string
}

/** The content of a file. */
export interface FileContent {
  readonly path: string
  readonly content: string
  /** The encoding of the file in `content`. */
  readonly encoding: "utf-8" | "base64"
  readonly iteration?: number
  /** Bytes of the file. */
  readonly size?: number
  readonly hash?: string
}

/** Why the gateway refuses a request. */
export type ErrorCode =
  | "bad_request"
  | "unauthorized"
  | "forbidden"
  | "not_found"
  | "conflict"
  | "too_large"
  | "rate_limited"
  | "session_not_active"
  | "upstream_unavailable"
  | "upstream_error"
  | "timeout"
  | "inference_unavailable"
  | "internal"

/** A position in the history of a session. */
export interface Position {
  readonly epoch: string
  /** The last known event. */
  readonly seq: number
}

/** Events before a position, the oldest first. */
export interface EventPage {
  /** The history of the events. */
  readonly epoch: string
  readonly events: ReadonlyArray<SessionEvent>
  /** Whether older events may be kept. */
  readonly hasOlder: boolean
}

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

/** Whether there is a connection. */
export type ConnectionStatus =
  | { readonly type: "connected" }
  | { readonly type: "disconnected"; readonly error: Error; readonly retryInMs: number }
