/**
 * Sessions as entries of the key-value store.
 */
import { Schema, Struct } from "effect"
import { Session } from "../Protocol/Session.ts"
import { SessionConflict } from "../Sessions.ts"

/** A session as it is stored in the key-value store: what clients see, and what its next instance is made from. */
export const SessionRecord = Schema.Struct({
  ...Struct.omit(Session.fields, "missingSecrets"),
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

const mostNamed = 10

/** Why a session without some of its secrets is not brought up; the message is for clients. */
export const lostSecrets = (missing: ReadonlyArray<string>): SessionConflict =>
  new SessionConflict({
    message: `Secrets of the session were lost as the gateway was restarted: ${missing.slice(0, mostNamed).join(", ")}${missing.length > mostNamed ? `, and ${missing.length - mostNamed} more` : ""}. Give the session's secrets again with start_session`
  })

/** Names of the secrets of a session that are not there any more. */
export const missingSecrets = (
  { secretNames }: Pick<SessionRecord, "secretNames">,
  secrets: Readonly<Record<string, unknown>>
): ReadonlyArray<string> => secretNames.filter(name => !Object.hasOwn(secrets, name))

/** What clients see of a session, with the secrets that it misses. */
export const withMissing = (session: Session, missing: ReadonlyArray<string>): Session =>
  missing.length === 0 ? session : { ...session, missingSecrets: missing }

/** What clients see of a record beside what only the living process knows. */
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
