/**
 * What a session's instances are created with: environment and deployment, which are kept in the session database, and
 * secrets, which are kept in memory.
 */
import { Effect, Redacted, Schema } from "effect"
import { type StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import type { LostPart, Session } from "../../Protocol/Fields.ts"
import { deploymentBytes, environmentBytes } from "../../Protocol/Limits.ts"
import type * as SessionEvents from "../../SessionEvents.ts"
import { SessionConflict, type SessionsBusy, SessionTooLarge, type StartSession } from "../../Sessions.ts"
import type { Secrets } from "../Session/SecretPool.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import { type Losses, lossesOf, type SessionRecord, toView } from "../Session/SessionRecords.ts"

/** Environment and deployment, as sent to the platform. */
export interface Launch {
  readonly environment: Readonly<Record<string, string>>
  readonly deployment?: unknown
}

type Stored = SessionEvents.LaunchConfiguration

/** The configuration of a session without environment and deployment. */
export const empty: Stored = { environment: null, deployment: null }

/** Replaces the stored parts that are given. An empty environment removes the stored one. */
export const merge = (stored: Stored, { deployment, environment }: Omit<StartSession, "secrets">): Stored => ({
  environment:
    environment === undefined
      ? stored.environment
      : Object.keys(environment).length === 0
        ? null
        : JSON.stringify(environment),
  deployment: deployment === undefined ? stored.deployment : JSON.stringify(deployment)
})

/** The parts that exist. */
const partsOf = (hasEnvironment: boolean, hasDeployment: boolean): ReadonlyArray<LostPart> => [
  ...(hasEnvironment ? (["environment"] as const) : []),
  ...(hasDeployment ? (["deployment"] as const) : [])
]

/** The parts that are stored. */
export const storedParts = ({ deployment, environment }: Stored): ReadonlyArray<LostPart> =>
  partsOf(environment !== null, deployment !== null)

/** The view of a session that is not in memory. Its secrets are absent if another node has them. */
export const viewOfStored = (
  record: SessionRecord,
  summary: SessionEvents.Summary | null | undefined,
  secrets?: Secrets
): Session => {
  // If the summary cannot be read, nothing counts as lost.
  const parts = summary ? partsOf(summary.hasEnvironment, summary.hasDeployment) : record.configured
  const losses = lossesOf(record, secrets ?? {}, parts)
  const view = toView(record, secrets === undefined ? { ...losses, secrets: [] } : losses, summary ?? undefined)
  return { ...view, headSeq: summary?.headSeq ?? record.headSeq }
}

const bytesOf = (texts: Readonly<Record<string, string>>): number =>
  Object.entries(texts).reduce((sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value), 0)

/** Fails if a limit is exceeded. Environment and secrets count with their names, the deployment as JSON. */
export const check = ({ deployment, environment }: Stored, secrets: Secrets): Effect.Effect<void, SessionTooLarge> =>
  Effect.suspend(() => {
    const revealed = Object.fromEntries(Object.entries(secrets).map(([name, secret]) => [name, Redacted.value(secret)]))
    const bytes = bytesOf(revealed) + (environment === null ? 0 : bytesOf(JSON.parse(environment)))
    if (bytes > environmentBytes) {
      return new SessionTooLarge({
        message: `environment and secrets have ${bytes} bytes together; the limit is ${environmentBytes}`
      })
    }
    const size = deployment === null ? 0 : Buffer.byteLength(deployment)
    return size > deploymentBytes
      ? new SessionTooLarge({ message: `deployment has ${size} bytes; the limit is ${deploymentBytes}` })
      : Effect.void
  })

const Environment = Schema.parseJson(Schema.Record({ key: Schema.String, value: Schema.String }))
const Deployment = Schema.parseJson(Schema.Unknown)

const decode = ({ deployment, environment }: Stored): Effect.Effect<Launch, StoreUnavailable> =>
  Effect.all({
    environment: environment === null ? Effect.succeed({}) : Schema.decode(Environment)(environment),
    ...(deployment === null ? {} : { deployment: Schema.decode(Deployment)(deployment) })
  }).pipe(
    Effect.mapError(() => new StoreUnavailable({ reason: "a launch configuration in the session database is damaged" }))
  )

const maxNamed = 10

/** Why a session with lost parts is not activated. The message is for clients. */
const errorOf = ({ configuration, secrets }: Losses): SessionConflict | undefined => {
  const problems: Array<string> = []
  if (secrets.length > 0) {
    const more = secrets.length > maxNamed ? `, and ${secrets.length - maxNamed} more` : ""
    problems.push(
      `Secrets of the session were lost, as the gateway was restarted or needed the memory: ${secrets.slice(0, maxNamed).join(", ")}${more}. Give the session's secrets again with start_session`
    )
  }
  if (configuration.length > 0) {
    const [were, them] = configuration.length === 1 ? ["was", "it"] : ["were", "them"]
    problems.push(
      `The ${configuration.join(" and the ")} of the session ${were} lost with the session database. Give ${them} again with start_session`
    )
  }
  return problems.length === 0 ? undefined : new SessionConflict({ message: problems.join(". ") })
}

/** The launch configuration of one session in memory. */
export class LaunchConfiguration {
  private semaphore: Effect.Semaphore | undefined
  private currentVersion = 0

  constructor(
    private readonly session: SessionCore,
    /** The parts that are stored in the session database. */
    private parts: ReadonlyArray<LostPart>
  ) {}

  get secrets(): Secrets {
    return this.session.shared.secrets.get(this.session.key)
  }

  /** Changes when environment or deployment change. */
  get version(): number {
    return this.currentVersion
  }

  get losses(): Losses {
    return lossesOf(this.session.record, this.secrets, this.parts)
  }

  /** Why no instance can be created, if something was lost. */
  get error(): SessionConflict | undefined {
    return errorOf(this.losses)
  }

  /** Reads which parts are stored, after the session database may have been replaced. */
  refresh(): Effect.Effect<void, StoreUnavailable> {
    return Effect.map(this.session.shared.events.configuration(this.session.key), stored => {
      this.parts = storedParts(stored)
      this.currentVersion++
    })
  }

  /** What to create an instance with. To repeat a creation and stop its instance, the parts that are left. */
  launch(isCleanup: boolean): Effect.Effect<Launch, SessionConflict | StoreUnavailable> {
    const { session } = this
    type Result = Effect.Effect<Launch, SessionConflict | StoreUnavailable>
    return Effect.flatMap(session.shared.events.configuration(session.key), (stored): Result => {
      this.parts = storedParts(stored)
      const { error } = this
      return error === undefined || isCleanup ? decode(stored) : Effect.fail(error)
    })
  }

  /** Stores what a start replaces, for the next instance. */
  give({
    secrets,
    ...given
  }: StartSession): Effect.Effect<
    void,
    SessionEvents.SessionElsewhere | SessionsBusy | SessionTooLarge | StoreBusy | StoreUnavailable
  > {
    const { session } = this
    const { events } = session.shared
    return this.inTurn(
      Effect.gen(this, function* () {
        const configuration = merge(yield* events.configuration(session.key), given)
        yield* check(configuration, secrets ?? this.secrets)
        // A deletion may have started in the meantime, here and below. What is stored after it would never be removed.
        if (session.isDeleting) return
        if (given.environment !== undefined || given.deployment !== undefined) {
          yield* events.configure(session.key, configuration)
          if (session.isDeleting) return
          this.parts = storedParts(configuration)
          this.currentVersion++
          const isGiven = (part: LostPart) => given[part] !== undefined
          const others = session.record.configured.filter(part => !isGiven(part))
          session.amend({ configured: [...others, ...this.parts.filter(isGiven)] })
        }
        if (secrets === undefined) return
        yield* session.shared.secrets.put(session.key, secrets)
        if (session.isDeleting) session.shared.secrets.forget(session.key)
        else session.amend({ secretNames: Object.keys(secrets) })
      })
    )
  }

  /** Runs one effect at a time. Most sessions in memory never need it, and a semaphore takes almost a kilobyte. */
  private inTurn<A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E> {
    this.semaphore ??= Effect.unsafeMakeSemaphore(1)
    return this.semaphore.withPermits(1)(work)
  }

  /** Removes all data of the session from the session database. */
  remove(): Effect.Effect<void, SessionEvents.SessionElsewhere | StoreBusy | StoreUnavailable> {
    return this.inTurn(this.session.shared.events.remove(this.session.key))
  }
}
