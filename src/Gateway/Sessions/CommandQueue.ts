import { Deferred, Effect, Exit, FiberId, type Scope } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"

/** Failures of the store, after which the command may be tried again. */
export type StoreError = StoreBusy | StoreUnavailable

/** A command that is carried out in order. */
export interface Command<Prepared, Result, E> {
  /** Runs concurrently with the `prepare` of other commands. */
  readonly prepare: Effect.Effect<Prepared, E>
  /** Waits for `before`, which ends after all earlier commands, and fails while one of them is blocked. */
  readonly wait: (prepared: Prepared, before: Effect.Effect<void, StoreError>) => Effect.Effect<void, E>
  /**
   * Carries out the command and completes `done`; it may continue after that. After its start, an interruption of the
   * caller does not interrupt it. `block` fails the waiting commands until it has ended, and must not be called later.
   */
  readonly run: (
    prepared: Prepared,
    done: Deferred.Deferred<Result, E>,
    block: (reason: StoreError) => void
  ) => Effect.Effect<void, E>
}

const unanswered = new Error("A command ended without an answer")

/** The commands of one session, one at a time and in the order of the calls. */
export class CommandQueue {
  /** The running command, which is the first, and the waiting ones. An entry is completed when its command may start. */
  private readonly entries = new Set<Deferred.Deferred<void, StoreError>>()
  private blockedBy: StoreError | undefined

  /** @param scope in which commands run, so that they continue without their callers */
  constructor(private readonly scope: Scope.Scope) {}

  /** Runs a command after all earlier ones. It is not run if the caller is interrupted before its start. */
  run<Prepared, Result, E>({ prepare, run, wait }: Command<Prepared, Result, E>): Effect.Effect<Result, E> {
    return Effect.acquireUseRelease(
      Effect.sync(() => ({ entry: this.join(), isStarted: false })),
      queued =>
        Effect.gen(this, function* () {
          const prepared = yield* prepare
          yield* wait(prepared, Deferred.await(queued.entry))
          const done = yield* Deferred.make<Result, E>()
          const command = Effect.suspend(() => run(prepared, done, reason => this.block(reason)))
          const work = Effect.onExit(Effect.interruptible(command), exit =>
            Effect.suspend(() => {
              this.blockedBy = undefined
              this.leave(queued.entry)
              return Exit.isFailure(exit) ? Deferred.failCause(done, exit.cause) : Deferred.die(done, unanswered)
            })
          )
          const begin = Effect.map(Effect.forkIn(work, this.scope), () => {
            queued.isStarted = true
          })
          yield* Effect.uninterruptible(begin)
          return yield* Deferred.await(done)
        }),
      ({ entry, isStarted }) =>
        Effect.sync(() => {
          if (!isStarted) this.leave(entry)
        })
    )
  }

  private join(): Deferred.Deferred<void, StoreError> {
    const entry = Deferred.unsafeMake<void, StoreError>(FiberId.none)
    this.entries.add(entry)
    if (this.blockedBy !== undefined) Deferred.unsafeDone(entry, Effect.fail(this.blockedBy))
    else if (this.entries.size === 1) Deferred.unsafeDone(entry, Effect.void)
    return entry
  }

  private leave(entry: Deferred.Deferred<void, StoreError>): void {
    this.entries.delete(entry)
    const first = this.entries.values().next()
    // A second completion is ignored.
    if (first.done !== true) Deferred.unsafeDone(first.value, Effect.void)
  }

  private block(reason: StoreError): void {
    this.blockedBy = reason
    // The first entry is the running command. It is completed already.
    for (const entry of this.entries) Deferred.unsafeDone(entry, Effect.fail(reason))
  }
}
