import { Schema } from "effect"
import { Count, described, Epoch, Identifier, Name, optional, SessionId, Timestamp } from "./Fields.ts"

/** The state of a session. Its instance runs while it is `active` or `reconnecting`. */
export const SessionState = Schema.Literal(
  "inactive",
  "activating",
  "active",
  "reconnecting",
  "deactivating",
  "error"
).annotations({ identifier: "SessionState", description: "The state of a session." })

/** A state as text. */
export type SessionState = (typeof SessionState)["Type"]

/** A part of a session's launch configuration that may be lost. */
export const LostPart = Schema.Literal("environment", "deployment")

export type LostPart = (typeof LostPart)["Type"]

/** A session as clients see it, and as it is stored. It never contains the session's secrets. */
export const Session = Schema.Struct({
  id: SessionId,
  tenant: Schema.String,
  agentType: Name,
  title: described(Schema.String, "Empty until the session has a title."),
  state: SessionState,
  instanceId: described(Schema.NullOr(Identifier), "The instance of the platform, or null if there is none."),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  epoch: Epoch,
  headSeq: described(Count, "The `seq` of the newest event, or 0 if there is none."),
  missingSecrets: optional(
    described(
      Schema.Array(Schema.String),
      "The names of secrets that were lost. `start_session` must provide them again."
    )
  ),
  missingConfiguration: optional(
    described(
      Schema.Array(LostPart),
      "The parts of the configuration that were lost. `start_session` must provide them again."
    )
  )
}).annotations({ identifier: "Session", description: "A session." })

export type Session = (typeof Session)["Type"]
