/**
 * The record of a session, as one entry of the key-value store has it.
 */
import { Clock, Duration, Effect, Option, Schema, Struct } from "effect"
import { randomHex } from "../../../base/RandomHex.ts"
import { LostPart, Session } from "../../Protocol/Fields.ts"
import type { CreateSession } from "../../Sessions.ts"

/** 32 random hexadecimal digits. */
export const randomId: Effect.Effect<string> = randomHex(4)

/** An id for a session: its creation time in 12 hexadecimal digits, so that ids sort by it, and 24 random digits. */
export const sessionId: Effect.Effect<string> = Effect.zipWith(
  Clock.currentTimeMillis,
  randomHex(3),
  (now, random) => `${Math.trunc(now).toString(16).padStart(12, "0")}${random}`
)

/** The creation time in a session's id, in epoch milliseconds. */
export const timeOf = (id: string): number => Number.parseInt(id.slice(0, 12), 16)

/**
 * The maximum age of a session when its record is written, in milliseconds: other nodes remove what is stored of a session
 * that has no record for longer.
 */
export const longestCreation = Duration.toMillis("5 minutes")

const idPattern = /^[0-9a-f]{36}$/

/** Whether a text has the form of an id of this gateway: 36 lower-case hexadecimal digits. */
export const isSessionId = (text: string): boolean => idPattern.test(text)

/** `<tenant>/<id>`, which names a session among those of all tenants. */
export const keyOf = (tenant: string, id: string): string => `${tenant}/${id}`

/** The tenant and the id of a session named by {@link keyOf}. */
export const addressOf = (key: string): readonly [tenant: string, id: string] => {
  const slash = key.indexOf("/")
  return [key.slice(0, slash), key.slice(slash + 1)]
}

/** The namespace of a tenant's sessions; keys are their ids. */
export const namespaceOf = (tenant: string): string => `tenant:${tenant}/sessions`

/** A session as it is stored: what clients see, and which secrets and parts of the configuration it should have. */
export const SessionRecord = Schema.Struct({
  ...Struct.omit(Session.fields, "missingSecrets", "missingConfiguration"),
  /** Names of the secrets, which are kept in memory only. */
  secretNames: Schema.Array(Schema.String),
  /** The parts of the launch configuration, which are stored in the session database. */
  configured: Schema.Array(LostPart),
  /** Whether the title is final: given by the client or generated. */
  titled: Schema.Boolean
})
export type SessionRecord = (typeof SessionRecord)["Type"]

const RecordText = Schema.parseJson(SessionRecord)

/** A record as JSON text. */
export const encodeRecord = Schema.encodeSync(RecordText)

const decodeRecord = Schema.decodeOption(RecordText)

/** Parses the record of a tenant's session. None if it is invalid: clients of the key-value store can change it. */
export const readRecord = (tenant: string, id: string, text: string): Option.Option<SessionRecord> =>
  Option.filter(decodeRecord(text), record => record.id === id && record.tenant === tenant)

/** The record of a new session, with a new id. `configured` are the parts of its launch configuration. */
export const initial = (
  tenant: string,
  { agentType, secrets = {}, title = "" }: CreateSession,
  configured: ReadonlyArray<LostPart>
): Effect.Effect<SessionRecord> =>
  Effect.gen(function* () {
    const id = yield* sessionId
    const createdAt = timeOf(id)
    return {
      ...{ id, tenant, agentType, title, state: "inactive", instanceId: null, createdAt, updatedAt: createdAt },
      epoch: yield* randomId,
      headSeq: 0,
      secretNames: Object.keys(secrets),
      configured,
      titled: title !== ""
    } satisfies SessionRecord
  })

/** The secrets and parts of the launch configuration that were lost. */
export interface Losses {
  readonly secrets: ReadonlyArray<string>
  readonly configuration: ReadonlyArray<LostPart>
}

/** The losses of a session, by what its record names and what exists. */
export const lossesOf = (
  { configured, secretNames }: Pick<SessionRecord, "configured" | "secretNames">,
  secrets: Readonly<Record<string, unknown>>,
  parts: ReadonlyArray<LostPart>
): Losses => ({
  secrets: secretNames.filter(name => !Object.hasOwn(secrets, name)),
  configuration: configured.filter(part => !parts.includes(part))
})

/** The view of a record for clients, with the losses of the session. */
export const toView = (
  { id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq }: Session,
  { configuration, secrets }: Losses
): Session => ({
  ...{ id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq },
  ...(secrets.length === 0 ? {} : { missingSecrets: secrets }),
  ...(configuration.length === 0 ? {} : { missingConfiguration: configuration })
})
