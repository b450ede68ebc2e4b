/** The conversations of sessions, as an agent needs them that keeps none. This is the port. */
import { Context, type Effect, Schema } from "effect"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"

/** A conversation could not be read. */
export class HistoryUnavailable extends Schema.TaggedError<HistoryUnavailable>()("HistoryUnavailable", {
  message: Schema.String
}) {}

/** Reads conversations. */
export class SessionHistory extends Context.Tag("causeway/AgentSessionHistory")<
  SessionHistory,
  {
    /** The conversation of a session, with everything that was stored before the call. */
    readonly read: (tenant: string, sessionId: string) => Effect.Effect<Conversation, HistoryUnavailable>
  }
>() {}
