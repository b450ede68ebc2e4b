/** The commands of one session, one at a time and in order. A command with an id is carried out once. */
import { createHash } from "node:crypto"
import { Deferred, Effect, Exit, FiberId, Option } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import type { Receipt } from "../../SessionEvents.ts"
import { type Caller, type ClientRun, runReceipt, SessionConflict } from "../../Sessions.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import * as State from "../Session/SessionState.ts"

/** Failures of the store, after which the command may be tried again. */
export type StoreError = StoreBusy | StoreUnavailable

/** A command that is carried out in order. */
interface Command<Prepared, Result, E> {
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

/** The id of a command that is carried out once, with a digest of its content. Absent: carried out each time. */
export type OnceId = { readonly id: string; readonly digest: string } | undefined

/** A digest of what a command does. */
export const digestOf = (...content: ReadonlyArray<unknown>): string =>
  createHash("sha256").update(JSON.stringify(content)).digest("base64url")

/** The client's own id of a command, or else the id of a call that may be repeated. */
export const onceIdOf = (
  clientMessageId: string | undefined,
  { commandId }: Pick<Caller, "commandId">,
  ...content: ReadonlyArray<unknown>
): OnceId => {
  const id = clientMessageId ?? commandId
  return id === undefined ? undefined : { id, digest: digestOf(...content) }
}

const unanswered = new Error("A command ended without an answer")

/** A command with an id is carried out once: its receipt is stored with what it does. */
export class CommandQueue {
  /** The running command, which is the first, and the waiting ones. An entry is completed when its command may start. */
  private readonly entries = new Set<Deferred.Deferred<void, StoreError>>()
  private blockedBy: StoreError | undefined

  /** Commands run in the scope of the session, so that they continue without their callers. */
  constructor(private readonly session: SessionCore) {}

  /**
   * Runs a command after all earlier ones. It is not run if the caller is interrupted before its start. If its id has a
   * receipt, it is not run either, and the result is made from the receipt.
   */
  run<Prepared, Result, E>(
    onceId: OnceId,
    resultOf: (turnId: string | null) => Result,
    command: Command<Prepared, Result, E | SessionConflict | StoreUnavailable>
  ): Effect.Effect<Result, E | SessionConflict | StoreUnavailable> {
    return Effect.flatMap(this.findReceipt(onceId), receipt =>
      receipt !== undefined
        ? Effect.succeed(resultOf(receipt.turnId))
        : this.inOrder<Prepared, Result, E | SessionConflict | StoreUnavailable>({
            ...command,
            run: (prepared, done, block) =>
              // The same command may have been carried out while this one waited.
              Effect.flatMap(this.findReceipt(onceId), receipt =>
                receipt === undefined
                  ? command.run(prepared, done, block)
                  : Effect.asVoid(Deferred.succeed(done, resultOf(receipt.turnId)))
              )
          })
    )
  }

  /** The receipt of an earlier command with the same id, if there was one. Fails if its content differs. */
  private findReceipt(onceId: OnceId): Effect.Effect<Receipt | undefined, SessionConflict | StoreUnavailable> {
    if (onceId === undefined) return Effect.succeed(undefined)
    const { id, digest } = onceId
    return Effect.flatMap(this.session.shared.events.receipt(this.session.key, id), found => {
      const receipt = Option.getOrUndefined(found)
      if (receipt === undefined || receipt.digest === digest) return Effect.succeed(receipt)
      const message = `The clientMessageId ${JSON.stringify(id)} was used with other content`
      return new SessionConflict({ message })
    })
  }

  /** The turn of a run that was recorded. */
  turnOf({ id }: ClientRun): Effect.Effect<string | null | undefined, StoreError> {
    const found = this.session.shared.events.receipt(this.session.key, runReceipt(id))
    return Effect.map(found, receipt => Option.getOrUndefined(receipt)?.turnId)
  }

  /** Records the turn of a run. Fails if the run was requested with other content. */
  recordRun({ digest, id }: ClientRun, turnId: string | null): Effect.Effect<void, SessionConflict | StoreError> {
    const receipt: Receipt = { id: runReceipt(id), digest, turnId }
    return Effect.gen(this, function* () {
      const found = yield* this.session.shared.events.receipt(this.session.key, receipt.id)
      if (Option.exists(found, known => known.digest !== digest)) {
        return yield* new SessionConflict({ message: `The run ${JSON.stringify(id)} was requested with other content` })
      }
      yield* this.session.journal.update(State.keepRun(receipt))
    })
  }

  /** Records the turn of a run whose message was sent before, by another run or without one, unless it is recorded. */
  joinRun({ digest, id }: ClientRun, turnId: string): Effect.Effect<void, StoreError> {
    const receipt: Receipt = { id: runReceipt(id), digest, turnId }
    return Effect.flatMap(this.session.shared.events.receipt(this.session.key, receipt.id), found =>
      Option.isSome(found) ? Effect.void : this.session.journal.update(State.keepRun(receipt))
    )
  }

  private inOrder<Prepared, Result, E>({ prepare, run, wait }: Command<Prepared, Result, E>): Effect.Effect<Result, E> {
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
          const begin = Effect.map(Effect.forkIn(work, this.session.shared.scope), () => {
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
