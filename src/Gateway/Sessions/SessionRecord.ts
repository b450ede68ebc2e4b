/**
 * Sessions as entries of the key-value store.
 */
import { Schema } from "effect"
import { Session } from "../Protocol/Session.ts"

/** A session as it is stored in the key-value store: what clients see, and what its next instance is made from. */
export const SessionRecord = Schema.Struct({
  ...Session.fields,
  deployment: Schema.optionalWith(Schema.Unknown, { exact: true }),
  environment: Schema.Record({ key: Schema.String, value: Schema.String }),
  /** Secrets themselves are held in memory only; their names tell when they were lost. */
  secretNames: Schema.Array(Schema.String),
  /** Whether the client gave the title, so that none is made up. */
  titled: Schema.Boolean
})

/** A session as it is stored in the key-value store. */
export type SessionRecord = (typeof SessionRecord)["Type"]

const RecordText = Schema.parseJson(SessionRecord)

/** A record as the store keeps it. */
export const encodeRecord = Schema.encodeSync(RecordText)

/** A record from the store, where others may have written too. */
export const decodeRecord = Schema.decodeUnknownEither(RecordText)

/** What clients see of a record. */
export const view = ({
  id,
  tenant,
  agentType,
  title,
  state,
  instanceId,
  createdAt,
  updatedAt,
  epoch,
  headSeq
}: Session): Session => ({ id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq })

/** The namespace of a tenant's sessions; keys are their ids. */
export const namespaceOf = (tenant: string): string => `tenant:${tenant}/sessions`

/** The actor of what the gateway itself writes. */
export const gatewayActor = "gateway"
