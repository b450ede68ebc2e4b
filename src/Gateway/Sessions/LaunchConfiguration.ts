/**
 * What a session's instances are created with: environment and deployment, kept in the session database, and secrets,
 * kept in memory.
 */
import { Effect, Equal, Redacted, Schema } from "effect"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { type Claim, FairPool } from "../FairPool.ts"
import { deploymentBytes, environmentBytes } from "../Protocol/Limits.ts"
import type { LostPart } from "../Protocol/Session.ts"
import type * as SessionEvents from "../SessionEvents.ts"
import { SessionConflict, type SessionsBusy, SessionTooLarge, type StartSession } from "../Sessions.ts"
import type { SessionCore } from "./SessionCore.ts"
import { type Losses, lossesOf } from "./SessionRecords.ts"
import type { InstanceRequest } from "./SessionState.ts"

/** Secrets of a session, by name. */
export type Secrets = Readonly<Record<string, Redacted.Redacted>>

/** Environment and deployment, as the platform gets them. */
export interface Launch {
  readonly environment: Readonly<Record<string, string>>
  readonly deployment?: unknown
}

type Stored = SessionEvents.LaunchConfiguration

/** A session that was given nothing. */
export const empty: Stored = { environment: null, deployment: null }

/** What is given in place of what is stored; what is absent stays. An empty environment is none. */
export const merge = (stored: Stored, { deployment, environment }: Omit<StartSession, "secrets">): Stored => ({
  environment:
    environment === undefined
      ? stored.environment
      : Object.keys(environment).length === 0
        ? null
        : JSON.stringify(environment),
  deployment: deployment === undefined ? stored.deployment : JSON.stringify(deployment)
})

/** Which parts are there. */
export const partsOf = (hasEnvironment: boolean, hasDeployment: boolean): ReadonlyArray<LostPart> => [
  ...(hasEnvironment ? (["environment"] as const) : []),
  ...(hasDeployment ? (["deployment"] as const) : [])
]

export const storedParts = ({ deployment, environment }: Stored): ReadonlyArray<LostPart> =>
  partsOf(environment !== null, deployment !== null)

const bytesOf = (texts: Readonly<Record<string, string>>): number =>
  Object.entries(texts).reduce((sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value), 0)

/** Fails where a limit is exceeded. Environment and secrets count with their names, the deployment as JSON. */
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
    Effect.mapError(() => new StoreUnavailable({ reason: "a launch configuration in the session database is spoilt" }))
  )

const mostNamed = 10

/** Why a session that lacks something is not activated; the message is for clients. */
const errorOf = ({ configuration, secrets }: Losses): SessionConflict | undefined => {
  const problems: Array<string> = []
  if (secrets.length > 0) {
    const more = secrets.length > mostNamed ? `, and ${secrets.length - mostNamed} more` : ""
    problems.push(
      `Secrets of the session were lost, as the gateway was restarted or needed the memory: ${secrets.slice(0, mostNamed).join(", ")}${more}. Give the session's secrets again with start_session`
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
  private readonly mutex = Effect.unsafeMakeSemaphore(1)
  private currentVersion = 0

  constructor(
    private readonly session: SessionCore,
    private currentSecrets: Secrets = {},
    /** Which parts the session database has. */
    private parts: ReadonlyArray<LostPart> = [],
    /** What a deleted session of an earlier run has left of it. */
    private readonly request?: InstanceRequest
  ) {}

  get secrets(): Secrets {
    return this.currentSecrets
  }

  /** Changes whenever environment or deployment do. */
  get version(): number {
    return this.currentVersion
  }

  get losses(): Losses {
    return lossesOf(this.session.record, this.currentSecrets, this.parts)
  }

  /** Why no instance can be created, where something was lost. */
  get error(): SessionConflict | undefined {
    return errorOf(this.losses)
  }

  loseSecrets(): void {
    this.currentSecrets = {}
  }

  /** Finds out what is stored, after the session database may have been replaced. */
  refresh(): Effect.Effect<void, StoreUnavailable> {
    return Effect.map(this.session.shared.events.configuration(this.session.key), stored => {
      this.parts = storedParts(stored)
      this.currentVersion++
    })
  }

  /** What to create an instance with; for a creation that is repeated only to stop its instance, what is left. */
  launch(isCleanup: boolean): Effect.Effect<Launch, SessionConflict | StoreUnavailable> {
    const { request, session } = this
    if (request?.environment !== undefined) return Effect.succeed({ ...request, environment: request.environment })
    type Result = Effect.Effect<Launch, SessionConflict | StoreUnavailable>
    return Effect.flatMap(session.shared.events.configuration(session.key), (stored): Result => {
      this.parts = storedParts(stored)
      const { error } = this
      return error === undefined || isCleanup ? decode(stored) : Effect.fail(error)
    })
  }

  /** Stores what a start gives, for the next instance. `putSecrets` keeps the secrets in memory. */
  give<E>(
    { secrets, ...given }: StartSession,
    putSecrets: (secrets: Secrets) => Effect.Effect<void, E>
  ): Effect.Effect<void, E | SessionTooLarge | StoreBusy | StoreUnavailable> {
    const { session } = this
    const { events } = session.shared
    return this.mutex.withPermits(1)(
      Effect.gen(this, function* () {
        // Nobody would ever remove it.
        if (session.isDeleting) return
        const configuration = merge(yield* events.configuration(session.key), given)
        yield* check(configuration, secrets ?? this.currentSecrets)
        if (given.environment !== undefined || given.deployment !== undefined) {
          yield* events.configure(session.key, configuration)
          this.parts = storedParts(configuration)
          this.currentVersion++
          const isGiven = (part: LostPart) => given[part] !== undefined
          const others = session.record.configured.filter(part => !isGiven(part))
          session.amend({ configured: [...others, ...this.parts.filter(isGiven)] })
        }
        if (secrets === undefined) return
        yield* putSecrets(secrets)
        this.currentSecrets = secrets
        session.amend({ secretNames: Object.keys(secrets) })
      })
    )
  }

  /** Removes all that the session database has of the session. */
  remove(): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    return this.mutex.withPermits(1)(this.session.shared.events.remove(this.session.key))
  }
}

/** Whether two sets of secrets are the same, each by name and value. */
export const isSame = (a: Secrets, b: Secrets): boolean => {
  const names = Object.keys(a)
  return (
    names.length === Object.keys(b).length &&
    names.every(name => Object.hasOwn(b, name) && Equal.equals(a[name], b[name]))
  )
}

/** Memory that a secret takes beside its name and its value, about. */
const overhead = 64

const sizeOf = (secrets: Secrets): number =>
  Object.entries(secrets).reduce(
    (sum, [name, secret]) => sum + overhead + Buffer.byteLength(name) + Buffer.byteLength(Redacted.value(secret)),
    0
  )

/** The sessions whose secrets are pooled. Neither method may throw. */
export interface SecretHolders {
  /** Whether a session's secrets are about to be used, and cannot be taken. */
  readonly needsSecrets: (session: string) => boolean
  readonly loseSecrets: (session: string) => void
}

/**
 * The secrets of all sessions, in memory and nowhere else, from a session's creation to its deletion. Keys are those of
 * the sessions, `<tenant>/<id>`.
 *
 * Where the memory is full, the oldest secrets of the tenant that has the most are dropped for another tenant's. Their
 * sessions lack them then as after a restart.
 */
export class SecretPool {
  private readonly bySession = new Map<string, { readonly secrets: Secrets; readonly claim: Claim }>()
  /** The sessions of each tenant that have secrets, oldest first. */
  private readonly byTenant = new Map<string, Set<string>>()
  private readonly pool: FairPool
  private dropped = 0

  constructor(
    /** In bytes. */
    capacity: number,
    private readonly holders: SecretHolders
  ) {
    this.pool = new FairPool({ name: "memory for secrets", capacity, reclaim: tenant => this.dropOldest(tenant) })
  }

  get(session: string): Secrets {
    return this.bySession.get(session)?.secrets ?? {}
  }

  /** Replaces the secrets of a session. */
  put(session: string, secrets: Secrets): Effect.Effect<void, SessionsBusy> {
    return Effect.suspend(() => {
      const size = sizeOf(secrets)
      if (size === 0) {
        this.forget(session)
        return Effect.void
      }
      const claim = this.claim(session, size)
      if (claim === undefined) return Effect.fail(this.pool.refusal())
      const sessions = this.byTenant.get(claim.holder) ?? new Set()
      sessions.delete(session)
      this.byTenant.set(claim.holder, sessions.add(session))
      this.bySession.set(session, { secrets, claim })
      return this.logDropped()
    })
  }

  forget(session: string): void {
    const known = this.bySession.get(session)
    if (known === undefined) return
    this.bySession.delete(session)
    const { holder } = known.claim
    const sessions = this.byTenant.get(holder)
    sessions?.delete(session)
    if (sessions?.size === 0) this.byTenant.delete(holder)
    known.claim.release()
  }

  private dropOldest(tenant: string): boolean {
    for (const session of this.byTenant.get(tenant) ?? []) {
      if (this.holders.needsSecrets(session)) continue
      this.forget(session)
      this.holders.loseSecrets(session)
      this.dropped++
      return true
    }
    return false
  }

  private claim(session: string, size: number): Claim | undefined {
    const known = this.bySession.get(session)
    if (known === undefined) return this.pool.take(session.slice(0, session.indexOf("/")), size)
    return known.claim.resize(size) ? known.claim : undefined
  }

  private logDropped(): Effect.Effect<void> {
    const sessions = this.dropped
    this.dropped = 0
    return sessions === 0
      ? Effect.void
      : Effect.logWarning("Secrets of the tenant that has the most were given up, as others needed the memory").pipe(
          Effect.annotateLogs({ sessions })
        )
  }
}
