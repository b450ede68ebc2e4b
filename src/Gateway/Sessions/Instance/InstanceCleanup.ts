/**
 * Stops the earlier instances of a session, so that none is leaked at the platform.
 */
import { type Duration, Effect, Exit } from "effect"
import * as Supervision from "../../../base/Supervision.ts"
import { AgentPlatformConnectionError } from "../../../Upstream/AgentPlatform.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import * as State from "../Session/SessionState.ts"
import type { InstanceCreation } from "./InstanceCreation.ts"

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

/** The pending stops of one session. */
export class InstanceCleanup {
  private failures = 0
  /** When the next attempt is due, in monotonic milliseconds. */
  private nextAttemptAt = Number.NEGATIVE_INFINITY
  private attempts = 0

  constructor(
    private readonly session: SessionCore,
    private readonly creation: InstanceCreation
  ) {}

  private get pending(): ReadonlyArray<State.PendingStop> {
    return this.session.state.pendingStops
  }

  /** Executes the pending stops, as far as the platform does so within the timeout. */
  run(timeout: Duration.DurationInput): Effect.Effect<void> {
    return Effect.suspend(() =>
      this.pending.length === 0
        ? Effect.void
        : // What cannot be interrupted at once, such as a write to a store that hangs, is not awaited.
          Effect.asVoid(Supervision.within(timeout, this.attempt(false)))
    )
  }

  /** Starts an attempt in the background if it is due. The concurrency of all sessions together is limited. */
  runInBackground(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { monotonic, scope } = this.session.shared
      if (this.pending.length === 0 || this.attempts > 0 || monotonic() < this.nextAttemptAt) return Effect.void
      return Effect.asVoid(Effect.forkIn(Effect.interruptible(this.attempt(true)), scope))
    })
  }

  /** Delays the next attempt as after a failure, because the platform is known to be unavailable. */
  postpone(): void {
    this.failures++
    this.nextAttemptAt = this.session.shared.monotonic() + delayAfter(this.failures)
  }

  /** Called before another instance is created. Waits for pending stops unless they failed just now; fails if too many. */
  makeRoom(timeout: Duration.DurationInput): Effect.Effect<void, AgentPlatformConnectionError> {
    return Effect.gen(this, function* () {
      if (this.session.shared.monotonic() >= this.nextAttemptAt) yield* this.run(timeout)
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
      this.creation.forget(key)
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
    return this.throttled(isBackground && !this.creation.has(key), this.creation.create(key, "cleanup"))
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
