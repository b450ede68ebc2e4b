import { Schema } from "effect"
import { Count, Epoch, Identifier, Name, SessionId, Timestamp } from "./Fields.ts"

/** Where a session stands. */
export const SessionState = Schema.Literal(
  "inactive",
  "activating",
  "active",
  "reconnecting",
  "deactivating",
  "error"
).annotations({ identifier: "SessionState", description: "Where a session stands." })

/** Where a session stands. */
export type SessionState = (typeof SessionState)["Type"]

/** A session as clients see it, and as it is stored. It never holds the session's secrets. */
export const Session = Schema.Struct({
  id: SessionId,
  tenant: Schema.String,
  agentType: Name,
  /** Empty until there is something to name the session after. */
  title: Schema.String,
  state: SessionState,
  /** The platform's instance; null while there is none. */
  instanceId: Schema.NullOr(Identifier),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  epoch: Epoch,
  /** The `seq` of the newest event; 0 where there is none. */
  headSeq: Count
}).annotations({ identifier: "Session", description: "A session as clients see it." })

/** A session as clients see it, and as it is stored. */
export type Session = (typeof Session)["Type"]
