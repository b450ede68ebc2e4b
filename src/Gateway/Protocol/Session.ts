import { Schema } from "effect"
import { Count, described, Epoch, Identifier, Name, optional, SessionId, Timestamp } from "./Fields.ts"

export const SessionState = Schema.Literal(
  "inactive",
  "activating",
  "active",
  "reconnecting",
  "deactivating",
  "error"
).annotations({ identifier: "SessionState", description: "Where a session stands." })

export type SessionState = (typeof SessionState)["Type"]

/** A part of a session's launch configuration that may be lost. */
export const LostPart = Schema.Literal("environment", "deployment")

export type LostPart = (typeof LostPart)["Type"]

/** A session as clients see it, and as it is stored. It never holds the session's secrets. */
export const Session = Schema.Struct({
  id: SessionId,
  tenant: Schema.String,
  agentType: Name,
  title: described(Schema.String, "Empty until there is something to name the session after."),
  state: SessionState,
  instanceId: described(Schema.NullOr(Identifier), "The platform's instance; null while there is none."),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  epoch: Epoch,
  headSeq: described(Count, "The `seq` of the newest event; 0 where there is none."),
  missingSecrets: optional(
    described(Schema.Array(Schema.String), "Names of secrets that were lost; `start_session` has to give them again.")
  ),
  missingConfiguration: optional(
    described(
      Schema.Array(LostPart),
      "What was lost of `environment` and `deployment`; `start_session` has to give it again."
    )
  )
}).annotations({ identifier: "Session", description: "A session as clients see it." })

export type Session = (typeof Session)["Type"]
