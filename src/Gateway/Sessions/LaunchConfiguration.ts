/**
 * What a session's instances are made from: the environment and the deployment, kept in the session database, and the
 * secrets, kept in memory.
 */
import { Effect, Redacted, Schema } from "effect"
import { byteLength } from "../../Kv/Names.ts"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { deploymentBytes, environmentBytes } from "../Protocol/Limits.ts"
import type { LostPart } from "../Protocol/Session.ts"
import type * as SessionEvents from "../SessionEvents.ts"
import { type SessionConflict, SessionTooLarge, type StartSession } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import type { Secrets } from "./Secrets.ts"

/** The parts as the platform gets them. */
export interface Launch {
  readonly environment: Readonly<Record<string, string>>
  readonly deployment?: unknown
}

/** Parts that a client gives; those that are absent stay as they are. */
type Given = Omit<StartSession, "secrets">

const textOf = (environment: Readonly<Record<string, string>>): string | null =>
  Object.keys(environment).length === 0 ? null : JSON.stringify(environment)

/** What is given, put over what is kept. An empty environment is none. */
export const merge = (
  kept: SessionEvents.LaunchConfiguration,
  { deployment, environment }: Given
): SessionEvents.LaunchConfiguration => ({
  environment: environment === undefined ? kept.environment : textOf(environment),
  deployment: deployment === undefined ? kept.deployment : JSON.stringify(deployment)
})

/** A session that was given nothing. */
export const nothing: SessionEvents.LaunchConfiguration = { environment: null, deployment: null }

/** Which parts a configuration has. */
export const partsOf = ({ deployment, environment }: SessionEvents.LaunchConfiguration): ReadonlyArray<LostPart> => [
  ...(environment === null ? [] : (["environment"] as const)),
  ...(deployment === null ? [] : (["deployment"] as const))
]

const bytesOf = (texts: Readonly<Record<string, string>>): number =>
  Object.entries(texts).reduce((sum, [name, value]) => sum + byteLength(name) + byteLength(value), 0)

/** Refuses what is over its limit. The environment and the secrets count with their names, the deployment as JSON. */
export const check = (
  { deployment, environment }: SessionEvents.LaunchConfiguration,
  secrets: Readonly<Record<string, Redacted.Redacted>>
): Effect.Effect<void, SessionTooLarge> =>
  Effect.suspend(() => {
    const revealed = Object.fromEntries(Object.entries(secrets).map(([name, secret]) => [name, Redacted.value(secret)]))
    const bytes = bytesOf(revealed) + (environment === null ? 0 : bytesOf(JSON.parse(environment)))
    if (bytes > environmentBytes) {
      return new SessionTooLarge({
        message: `environment and secrets have ${bytes} bytes together; the limit is ${environmentBytes}`
      })
    }
    const size = deployment === null ? 0 : byteLength(deployment)
    return size > deploymentBytes
      ? new SessionTooLarge({ message: `deployment has ${size} bytes; the limit is ${deploymentBytes}` })
      : Effect.void
  })

const Environment = Schema.parseJson(Schema.Record({ key: Schema.String, value: Schema.String }))
const Deployment = Schema.parseJson(Schema.Unknown)

/** A configuration from the database, for the platform. */
export const decode = ({
  deployment,
  environment
}: SessionEvents.LaunchConfiguration): Effect.Effect<Launch, StoreUnavailable> =>
  Effect.all({
    environment: environment === null ? Effect.succeed({}) : Schema.decode(Environment)(environment),
    ...(deployment === null ? {} : { deployment: Schema.decode(Deployment)(deployment) })
  }).pipe(
    Effect.mapError(() => new StoreUnavailable({ reason: "a launch configuration in the session database is spoilt" }))
  )

type LaunchError = SessionConflict | StoreUnavailable

/**
 * What an instance of a session is asked for with. One that is only asked for to learn what its key has led to is
 * asked for with what is left.
 */
export const launchOf = (entity: Entity, isReturn: boolean): Effect.Effect<Launch, LaunchError> => {
  const { key, request, shared } = entity
  // Deleted sessions of earlier versions have it in their bookmark.
  if (request?.environment !== undefined) return Effect.succeed({ ...request, environment: request.environment })
  return Effect.flatMap(shared.events.configuration(key), (found): Effect.Effect<Launch, LaunchError> => {
    entity.kept = partsOf(found)
    const { loss } = entity
    return loss === undefined || isReturn ? decode(found) : Effect.fail(loss)
  })
}

/**
 * Keeps what a start gives, for the next instance that is brought up: first what has to be stored, then the secrets.
 * `putSecrets` has them kept in memory.
 */
export const give = <E>(
  entity: Entity,
  { secrets, ...parts }: StartSession,
  putSecrets: (secrets: Secrets) => Effect.Effect<void, E>
): Effect.Effect<void, E | SessionTooLarge | StoreBusy | StoreUnavailable> =>
  entity.configuring.withPermits(1)(
    Effect.gen(function* () {
      const { events } = entity.shared
      // One that is being deleted has no use for it, and nobody would ever remove it.
      if (entity.isGoing) return
      const configuration = merge(yield* events.configuration(entity.key), parts)
      yield* check(configuration, secrets ?? entity.secrets)
      if (parts.environment !== undefined || parts.deployment !== undefined) {
        yield* events.configure(entity.key, configuration)
        entity.kept = partsOf(configuration)
        entity.edition++
        const isGiven = (part: LostPart) => parts[part] !== undefined
        const others = entity.record.configured.filter(part => !isGiven(part))
        entity.amend({ configured: [...others, ...entity.kept.filter(isGiven)] })
      }
      if (secrets === undefined) return
      yield* putSecrets(secrets)
      entity.secrets = secrets
      entity.amend({ secretNames: Object.keys(secrets) })
    })
  )
