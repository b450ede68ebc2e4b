/**
 * The instances of a session at the platform. Each is created with an idempotency key, so that a repeated request returns
 * the same instance, and earlier ones are stopped, so that none is leaked.
 */
import { Deferred, type Duration, Effect, Exit, FiberId } from "effect"
import * as Supervision from "../../../base/Supervision.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import { AgentPlatformConnectionError } from "../../../Upstream/AgentPlatform.ts"
import type { SessionConflict } from "../../Sessions.ts"
import { isSame, type Secrets } from "../Session/SecretPool.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import * as State from "../Session/SessionState.ts"
import type { LaunchConfiguration } from "./LaunchConfiguration.ts"

/** Why an instance cannot be created: the platform, or a launch configuration that was lost or cannot be read. */
export type CreationError = AgentPlatformConnectionError | SessionConflict | StoreUnavailable

/** The purpose of a request with a key: the first request, a repetition, or to get the id of an instance to stop. */
export type Purpose = "first" | "again" | "cleanup"

type Creation = Effect.Effect<string, CreationError>

/** Whether a failed creation is known to have made no instance. */
const madeNothing = (error: CreationError): boolean => {
  if (error._tag !== "AgentPlatformConnectionError") return true
  const { isInDoubt, reason, statusCode } = error
  return (
    isInDoubt !== true &&
    (reason === "not_configured" ||
      reason === "circuit_open" ||
      (reason === "status" && statusCode !== undefined && statusCode >= 400 && statusCode < 500))
  )
}

/** Maximum number of pending stops of a session. At the maximum it gets no further instance. */
const maxPending = 8

/** Refusals after which a stop is abandoned. They take more than half an hour. */
const maxRefusals = 12

/** Statuses of refusals that may end without our action or with other credentials. */
const transient: ReadonlySet<number> = new Set([401, 403, 408, 429])

/** The delay after a number of failures, in milliseconds: 5 s, doubling to 5 minutes. */
export const delayAfter = (failures: number): number => Math.min(5000 * 2 ** Math.max(0, failures - 1), 300_000)

const isRefusal = ({ reason, statusCode = 0 }: AgentPlatformConnectionError): boolean =>
  reason === "status" && statusCode >= 400 && statusCode < 500 && !transient.has(statusCode)

/** The instances of one session: creations and pending stops. */
export class PlatformInstances {
  /** Creations in progress, and those whose outcome is not stored yet, by key. */
  private readonly creations = new Map<string, Creation>()
  /** The last key with which this process has requested an instance, and the parameters of that request. */
  private requested: { readonly key: string; readonly secrets: Secrets; readonly version: number } | undefined

  private failures = 0
  /** When the next attempt to stop instances is due, in monotonic milliseconds. */
  private nextAttemptAt = Number.NEGATIVE_INFINITY
  private attempts = 0

  constructor(
    private readonly session: SessionCore,
    private readonly configuration: LaunchConfiguration
  ) {}

  /** Whether the key of an instance was requested with the current secrets and launch configuration. */
  isReusable(instance: State.Instance | null): instance is State.Instance {
    const { configuration, requested } = this
    return (
      instance !== null &&
      instance.instanceId === null &&
      requested?.key === instance.key &&
      requested.version === configuration.version &&
      isSame(requested.secrets, configuration.secrets)
    )
  }

  /** Forgets the secrets of the last request. */
  loseSecrets(): void {
    this.requested = undefined
  }

  /**
   * Creates the instance of a key, or joins the creation in progress. Returns the instance's id.
   *
   * A creation is never interrupted: it may have made an instance, and only its answer has the id. It ends within the
   * timeout of the platform's client. A refusal means that there is no instance only if the key was never used before.
   */
  create(key: string, purpose: Purpose): Creation {
    return Effect.uninterruptibleMask(restore => {
      const known = this.creations.get(key)
      if (known !== undefined) return restore(known)
      const { configuration, requested, session } = this
      const { agentType, id: sessionId, tenant } = session.record
      const done = Deferred.unsafeMake<string, CreationError>(FiberId.none)
      const creation: Creation = Deferred.await(done)
      const isBackground = purpose === "cleanup"
      const forget = Effect.sync(() => this.creations.delete(key))
      // While the store is unavailable, the creation still knows its outcome.
      const recordOutcome = (f: (state: State.SessionState) => State.SessionState) =>
        Effect.ignore(Effect.zipRight(session.setState(f), forget))
      const end = (exit: Exit.Exit<string, CreationError>) =>
        Effect.gen(function* () {
          if (Exit.isSuccess(exit)) yield* recordOutcome(state => State.setInstanceId(state, key, exit.value))
          else {
            yield* forget
            const isNothing = purpose === "first" && exit.cause._tag === "Fail" && madeNothing(exit.cause.error)
            if (isNothing) yield* recordOutcome(state => State.removeInstance(state, key))
          }
          yield* Deferred.done(done, exit)
        })
      this.creations.set(key, creation)
      if (!isBackground) this.requested = { key, secrets: configuration.secrets, version: configuration.version }
      // A key is requested again with the same secrets while they are known.
      const secrets = isBackground && requested?.key !== key ? {} : (this.requested?.secrets ?? {})
      return Effect.flatMap(configuration.launch(isBackground), ({ deployment, environment }) =>
        session.shared.platform.create({
          ...{ agentType, tenant, sessionId, deployment, environment, secrets, isBackground },
          idempotencyKey: key
        })
      ).pipe(
        Effect.interruptible,
        Effect.exit,
        Effect.flatMap(end),
        Effect.forkIn(session.shared.scope),
        Effect.zipRight(restore(creation))
      )
    })
  }

  private get pending(): ReadonlyArray<State.PendingStop> {
    return this.session.state.pendingStops
  }

  /** Stops earlier instances, as far as the platform does so within the timeout. */
  stopPending(timeout: Duration.DurationInput): Effect.Effect<void> {
    return Effect.suspend(() =>
      this.pending.length === 0
        ? Effect.void
        : // What cannot be interrupted at once, such as a write to a store that hangs, is not awaited.
          Effect.asVoid(Supervision.within(timeout, this.attempt(false)))
    )
  }

  /** Starts an attempt in the background if it is due. The concurrency of all sessions together is limited. */
  stopInBackground(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { monotonic, scope } = this.session.shared
      if (this.pending.length === 0 || this.attempts > 0 || monotonic() < this.nextAttemptAt) return Effect.void
      return Effect.asVoid(Effect.forkIn(Effect.interruptible(this.attempt(true)), scope))
    })
  }

  /** Delays the next attempt to stop instances as after a failure, because the platform is known to be unavailable. */
  postpone(): void {
    this.failures++
    this.nextAttemptAt = this.session.shared.monotonic() + delayAfter(this.failures)
  }

  /** Called before another instance is created. Waits for pending stops unless they failed just now; fails if too many. */
  makeRoom(timeout: Duration.DurationInput): Effect.Effect<void, AgentPlatformConnectionError> {
    return Effect.gen(this, function* () {
      if (this.session.shared.monotonic() >= this.nextAttemptAt) yield* this.stopPending(timeout)
      const { length } = this.pending
      if (length < maxPending) return
      return yield* new AgentPlatformConnectionError({
        operation: "stop",
        reason: "connection",
        message: `${length} earlier instances of the session could not be stopped yet`
      })
    })
  }

  /** One attempt at all pending stops. Concurrent attempts are safe: stopping is idempotent. */
  private attempt(isBackground: boolean): Effect.Effect<unknown> {
    return Effect.acquireUseRelease(
      Effect.sync(() => {
        this.attempts++
        return this.pending
      }),
      pending =>
        Effect.forEach(pending, stop => this.stop(stop, isBackground), { concurrency: isBackground ? 1 : "unbounded" }),
      (_, exit) =>
        Effect.sync(() => {
          this.attempts--
          if (Exit.isSuccess(exit) && !exit.value.includes(false)) {
            this.failures = 0
            this.nextAttemptAt = Number.NEGATIVE_INFINITY
          } else this.postpone()
        })
    )
  }

  /** Stops one instance. Returns whether that is complete. */
  private stop(pending: State.PendingStop, isBackground: boolean): Effect.Effect<boolean> {
    const { key } = pending
    const { platform } = this.session.shared
    return Effect.gen(this, function* () {
      const id = yield* this.instanceId(pending, isBackground)
      yield* this.throttled(isBackground, platform.stop(id, { isBackground }))
      yield* this.session.setState(state => State.removeInstance(state, key))
      this.creations.delete(key)
      return true
    }).pipe(
      Effect.catchAll(error =>
        // The creation may have ended with a proof that there is no instance.
        !this.pending.some(stop => stop.key === key)
          ? Effect.succeed(true)
          : Effect.as(
              error instanceof AgentPlatformConnectionError ? this.onFailure(pending, error) : Effect.void,
              false
            )
      )
    )
  }

  /** The id of an instance. Without an answer to its creation, the creation is repeated with its key. */
  private instanceId({ instanceId, key }: State.PendingStop, isBackground: boolean) {
    if (instanceId !== null) return Effect.succeed(instanceId)
    return this.throttled(isBackground && !this.creations.has(key), this.create(key, "cleanup"))
  }

  private throttled<A, E>(isBackground: boolean, call: Effect.Effect<A, E>) {
    const { record, shared } = this.session
    return isBackground ? shared.cleanups.use(record.tenant, 1, () => call) : call
  }

  private onFailure({ instanceId, key, refusals }: State.PendingStop, error: AgentPlatformConnectionError) {
    const { session } = this
    const note = { session: session.key, reason: error.message }
    if (!isRefusal(error)) {
      return Effect.annotateLogs(Effect.logWarning("An instance could not be stopped; it will be retried"), note)
    }
    if (refusals + 1 < maxRefusals) return Effect.ignore(session.setState(state => State.countRefusal(state, key)))
    return Effect.zipRight(
      Effect.logError("The platform refuses all requests for an instance, which may be left running").pipe(
        Effect.annotateLogs({ ...note, instance: instanceId ?? "unknown", idempotencyKey: key })
      ),
      Effect.ignore(session.setState(state => State.removeInstance(state, key)))
    )
  }
}
