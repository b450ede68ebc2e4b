/**
 * Sessions as entries of the key-value store.
 */
import { Schema, Struct } from "effect"
import { LostPart, Session } from "../Protocol/Session.ts"
import { SessionConflict } from "../Sessions.ts"

/** A session as it is stored in the key-value store: what clients see, and what tells when something was lost. */
export const SessionRecord = Schema.Struct({
  ...Struct.omit(Session.fields, "missingSecrets", "missingConfiguration"),
  /** Secrets themselves are held in memory only; their names tell when they were lost. */
  secretNames: Schema.Array(Schema.String),
  /** Which parts of a launch configuration the session was given; they lie in the session database. */
  configured: Schema.Array(LostPart),
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

/** What a list needs of a record. */
export type ListedRecord = Omit<SessionRecord, "titled">

const isText = (value: unknown): value is string => typeof value === "string"
const isTexts = (value: unknown): value is ReadonlyArray<string> => Array.isArray(value) && value.every(isText)
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0
const isState = Schema.is(Session.fields.state)
const areParts = Schema.is(SessionRecord.fields.configured)

/**
 * A record of a tenant's session as a list needs it, or nothing where it is none. Lists read hundreds of records, and
 * to check their members by hand takes a tenth of the time that {@link decodeRecord} takes.
 */
export const listedRecord = (tenant: string, key: string, text: string): ListedRecord | undefined => {
  let record: Partial<Record<keyof SessionRecord, unknown>> | null
  try {
    record = JSON.parse(text)
  } catch {
    return undefined
  }
  if (typeof record !== "object" || record === null) return undefined
  const { agentType, configured, createdAt, epoch, headSeq, id, instanceId, secretNames, state, title, updatedAt } =
    record
  if (id !== key || record.tenant !== tenant || !isState(state)) return undefined
  if (!(isText(agentType) && isText(title) && isText(epoch) && (instanceId === null || isText(instanceId)))) {
    return undefined
  }
  if (!(isCount(createdAt) && isCount(updatedAt) && isCount(headSeq))) return undefined
  if (!(isTexts(secretNames) && areParts(configured))) return undefined
  return {
    ...{ id: key, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq },
    secretNames,
    configured
  }
}

const mostNamed = 10

const named = (names: ReadonlyArray<string>): string =>
  `${names.slice(0, mostNamed).join(", ")}${names.length > mostNamed ? `, and ${names.length - mostNamed} more` : ""}`

/** Why a session that misses something is not brought up, if it does; the message is for clients. */
export const lossOf = (
  secrets: ReadonlyArray<string>,
  configuration: ReadonlyArray<LostPart>
): SessionConflict | undefined => {
  const losses = [
    ...(secrets.length === 0
      ? []
      : [
          `Secrets of the session were lost, as the gateway was restarted or needed the memory: ${named(secrets)}. Give the session's secrets again with start_session`
        ]),
    ...(configuration.length === 0
      ? []
      : [
          `The ${configuration.join(" and the ")} of the session ${configuration.length === 1 ? "was" : "were"} lost with the session database. Give ${configuration.length === 1 ? "it" : "them"} again with start_session`
        ])
  ]
  return losses.length === 0 ? undefined : new SessionConflict({ message: losses.join(". ") })
}

/** Names of the secrets of a session that are not there any more. */
export const missingSecrets = (
  { secretNames }: Pick<SessionRecord, "secretNames">,
  secrets: Readonly<Record<string, unknown>>
): ReadonlyArray<string> => secretNames.filter(name => !Object.hasOwn(secrets, name))

/** Parts of a session's launch configuration that are not there any more. */
export const missingParts = (
  { configured }: Pick<SessionRecord, "configured">,
  kept: ReadonlyArray<LostPart>
): ReadonlyArray<LostPart> => configured.filter(part => !kept.includes(part))

/** What clients see of a session, with the secrets and the parts of its launch configuration that it misses. */
export const withMissing = (
  session: Session,
  secrets: ReadonlyArray<string>,
  configuration: ReadonlyArray<LostPart>
): Session => ({
  ...session,
  ...(secrets.length === 0 ? {} : { missingSecrets: secrets }),
  ...(configuration.length === 0 ? {} : { missingConfiguration: configuration })
})

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
