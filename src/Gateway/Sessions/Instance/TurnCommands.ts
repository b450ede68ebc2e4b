/**
 * What clients send to a running instance: messages, interrupts and answers, in order and each at most once.
 *
 * A message is recorded in the session's history and then sent. Its turn ends whatever happens in between, and no message
 * is sent twice.
 */

import { createHash } from "node:crypto"
import { Deferred, Duration, Effect, Either, Exit, FiberId, Option } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { AgentPlatformConnectionError } from "../../../Upstream/AgentPlatform.ts"
import type { TurnEnd } from "../../Protocol/Event.ts"
import type { Receipt } from "../../SessionEvents.ts"
import {
  type ActivationError,
  type Caller,
  type ClientRun,
  runReceipt,
  SessionConflict,
  SessionNotActive,
  SessionsBusy
} from "../../Sessions.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import { randomId } from "../Session/SessionRecords.ts"
import * as State from "../Session/SessionState.ts"
import { openTurns, sendTimeout } from "../Settings.ts"
import type { InstanceLifecycle } from "./InstanceLifecycle.ts"
import type { InstanceLink } from "./InstanceLink.ts"

/** Failures of the store, after which the command may be tried again. */
type StoreError = StoreBusy | StoreUnavailable

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
type OnceId = { readonly id: string; readonly digest: string } | undefined

/** The client's own id of a command, or else the id of a call that may be repeated. */
const onceIdOf = (
  clientMessageId: string | undefined,
  { commandId }: Pick<Caller, "commandId">,
  ...content: ReadonlyArray<unknown>
): OnceId => {
  const id = clientMessageId ?? commandId
  return id === undefined
    ? undefined
    : { id, digest: createHash("sha256").update(JSON.stringify(content)).digest("base64url") }
}

const unanswered = new Error("A command ended without an answer")

/** A command with an id is carried out once: its receipt is stored with what it does. */
class CommandQueue {
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

/** The connection to an instance, and the deadline for sending, in monotonic milliseconds. */
interface Connected {
  readonly link: InstanceLink
  readonly deadline: number
}

const notActive = (mayPass: boolean) =>
  new SessionNotActive({ message: "The session has no running instance", mayPass })

const refused = (refusal: State.Refusal): SessionNotActive | SessionsBusy =>
  refusal.is === "not_running"
    ? notActive(true)
    : new SessionsBusy({ message: `${refusal.open} turns are open; the limit is ${openTurns}` })

type AnswerError = SessionNotActive | SessionConflict | AgentPlatformConnectionError | StoreError

/** A message that is recorded and has not been sent. */
interface Unsent {
  readonly turnId: string
  readonly withdrawn: Deferred.Deferred<void>
}

const inputOf = (run: ClientRun | undefined) => (run?.input === undefined ? {} : { input: run.input })

/** Maximum number of open questions and approvals. Above it the oldest are closed, and answers to them are refused. */
const maxRequests = 1024

/** The commands of one session. */
export class TurnCommands {
  private readonly commands: CommandQueue
  /** Questions and approvals that wait for an answer, with their turns. */
  private readonly requests = new Map<string, string | undefined>()
  private unsent: Unsent | undefined

  constructor(
    private readonly session: SessionCore,
    private readonly lifecycle: InstanceLifecycle,
    /** Called with each message that is recorded. */
    private readonly onMessage: (content: string) => void
  ) {
    this.commands = new CommandQueue(session)
  }

  /** Called when the agent has asked a question or requested an approval. */
  openRequest(requestId: string, turnId: string | undefined): void {
    this.requests.set(requestId, turnId)
    if (this.requests.size > maxRequests) this.requests.delete(this.requests.keys().next().value!)
  }

  closeRequest(requestId: string): void {
    this.requests.delete(requestId)
  }

  closeRequests(): void {
    this.requests.clear()
  }

  /**
   * Starts a turn with a message, after activating the session. Returns the turn's id. A message that was sent before
   * with the same `clientMessageId` is not sent again, and the result is the same.
   */
  send(
    caller: Pick<Caller, "actor" | "commandId" | "run">,
    content: string,
    clientMessageId?: string
  ): Effect.Effect<string, ActivationError | SessionsBusy> {
    const { session } = this
    const sub = caller.actor
    const onceId = onceIdOf(clientMessageId, caller, "message", content)
    const sent = this.commands.run<Connected, string, ActivationError | SessionsBusy>(onceId, turnId => turnId ?? "", {
      prepare: Effect.map(this.lifecycle.activate(), link => this.connected(link)),
      wait: this.wait(true),
      run: (connected, done, block) =>
        Effect.gen(this, function* () {
          const turnId = `turn-${yield* randomId}`
          const end = (endOf: (turnId: string) => TurnEnd, isSent: boolean, onUnavailable = block) =>
            session.journal.updateWithRetry(
              state => State.revokeReceipt(State.endPendingTurns(state, [turnId], endOf), isSent ? undefined : onceId),
              onUnavailable
            )
          // Before the message: a run that is known without its turn may send it again.
          if (caller.run !== undefined) yield* this.commands.recordRun(caller.run, turnId)
          const recorded = yield* Effect.either(this.record({ turnId, content, sub, clientMessageId, receipt: onceId }))
          if (Either.isLeft(recorded)) {
            const { left } = recorded
            yield* Deferred.fail(done, left)
            if (left._tag === "SessionNotActive" || left._tag === "SessionsBusy") return
            // The store may have recorded it in spite of the failure.
            const notRecorded = State.errored("not_recorded", "The message could not be recorded, and was not sent")
            if (onceId !== undefined) return yield* end(notRecorded, false)
            // Only a message with the same id has to wait until the store recovers.
            return yield* Effect.asVoid(
              Effect.forkIn(
                end(notRecorded, false, () => {}),
                session.shared.scope
              )
            )
          }
          this.onMessage(content)
          const sent = yield* Effect.either(this.sendUnlessWithdrawn(connected, turnId, content, caller.run))
          if (Either.isLeft(sent)) {
            yield* Deferred.fail(done, this.orNotActive(sent.left, true))
            return yield* end(State.errored("not_sent", sent.left.message), false)
          }
          yield* Deferred.succeed(done, turnId)
          if (!sent.right) yield* end(State.interrupted("interrupted before the message was sent"), true)
        })
    })
    const { run } = caller
    return run === undefined ? sent : Effect.tap(sent, turnId => this.commands.joinRun(run, turnId))
  }

  /** Asks the agent to end a turn, whose end arrives as an event. A message that has not been sent is withdrawn. */
  interrupt(
    turnId: string | undefined
  ): Effect.Effect<string, SessionNotActive | SessionConflict | AgentPlatformConnectionError> {
    return Effect.gen(this, function* () {
      const link = yield* this.running()
      const { state } = this.session
      const wanted = turnId ?? State.currentTurn(state)
      if (wanted === undefined) return yield* new SessionConflict({ message: "No turn is open" })
      if (!state.turns.open.has(wanted)) {
        return yield* new SessionConflict({ message: `Turn ${JSON.stringify(wanted)} is not open` })
      }
      const { unsent } = this
      if (unsent?.turnId === wanted) {
        this.unsent = undefined
        // Synchronously: an interruption in between would leave the message neither sent nor withdrawn.
        Deferred.unsafeDone(unsent.withdrawn, Effect.void)
        return wanted
      }
      const sending = link.send({ type: "interrupt", turnId: wanted }, { timeout: sendTimeout })
      yield* Effect.mapError(sending, error => this.orNotActive(error, false))
      return wanted
    })
  }

  /** Sends an answer to a question or an approval that is open, once for each `clientMessageId`. */
  answer(
    caller: Pick<Caller, "commandId" | "run">,
    requestId: string,
    answer: unknown,
    clientMessageId?: string
  ): Effect.Effect<void, AnswerError> {
    const { session } = this
    const onceId = onceIdOf(clientMessageId, caller, "answer", requestId, answer)
    const isOpen = Effect.suspend(() =>
      this.requests.has(requestId)
        ? Effect.void
        : new SessionConflict({ message: `No request ${JSON.stringify(requestId)} waits for an answer` })
    )
    return this.commands.run<Connected, void, AnswerError>(onceId, () => {}, {
      prepare: Effect.zipLeft(
        Effect.map(this.running(), link => this.connected(link)),
        isOpen
      ),
      wait: this.wait(false),
      run: ({ deadline, link }, done, block) =>
        Effect.gen(this, function* () {
          // It may have been answered in the meantime.
          yield* isOpen
          if (caller.run !== undefined) {
            const turnId = this.requests.get(requestId) ?? State.currentTurn(session.state)
            yield* this.commands.recordRun(caller.run, turnId ?? null)
          }
          const frame = { type: "answer", requestId, answer, ...inputOf(caller.run) } as const
          const sending = Effect.mapError(link.send(frame, { timeout: this.millisUntil(deadline) }), error =>
            this.orNotActive(error, false)
          )
          const recorded = onceId === undefined ? Effect.void : session.journal.update(State.keepReceipt(onceId))
          const sent = yield* Effect.either(Effect.zipRight(recorded, sending))
          yield* Deferred.complete(done, sent)
          if (Either.isRight(sent) || onceId === undefined) return
          yield* session.journal.updateWithRetry(
            state => State.revokeReceipt(State.withoutEvents(state), onceId),
            block
          )
        })
    })
  }

  private connected(link: InstanceLink): Connected {
    return { link, deadline: this.session.shared.monotonic() + Duration.toMillis(sendTimeout) }
  }

  private millisUntil(deadline: number): number {
    return Math.max(0, deadline - this.session.shared.monotonic())
  }

  private running(): Effect.Effect<InstanceLink, SessionNotActive> {
    return Effect.suspend(() => {
      const { connection } = this.lifecycle
      return connection === undefined ? Effect.fail(notActive(false)) : Effect.succeed(connection)
    })
  }

  /** The error of sending to an instance. If the instance has ended, it is `SessionNotActive`. */
  private orNotActive(error: AgentPlatformConnectionError, mayPass: boolean) {
    return this.session.isRunning ? error : notActive(mayPass)
  }

  /** Waits for earlier commands and for the connection, until the deadline. */
  private wait(mayPass: boolean) {
    return ({ deadline, link }: Connected, before: Effect.Effect<void, StoreError>) =>
      Effect.timeoutFail(Effect.zipRight(before, link.ready), {
        duration: this.millisUntil(deadline),
        onTimeout: () =>
          new AgentPlatformConnectionError({
            operation: "connect",
            reason: "timeout",
            message: `It could not be sent to the instance within ${Duration.format(sendTimeout)}`
          })
      }).pipe(Effect.catchTag("AgentPlatformConnectionError", error => Effect.fail(this.orNotActive(error, mayPass))))
  }

  /** Records a message, which starts its turn. */
  private record(message: State.Message) {
    return Effect.suspend(() => {
      let refusal: State.Refusal | undefined
      const accept = (state: State.SessionState): State.Update => {
        const accepted = State.acceptMessage(state, message, openTurns)
        refusal = Either.isLeft(accepted) ? accepted.left : undefined
        return Either.getOrElse(accepted, () => State.withoutEvents(state))
      }
      return Effect.flatMap(this.session.journal.update(accept), () =>
        refusal === undefined ? Effect.void : Effect.fail(refused(refusal))
      )
    })
  }

  /** Sends a recorded message unless it is withdrawn first. Returns whether it was sent. */
  private sendUnlessWithdrawn({ deadline, link }: Connected, turnId: string, content: string, run?: ClientRun) {
    return Effect.gen(this, function* () {
      const unsent: Unsent = { turnId, withdrawn: yield* Deferred.make<void>() }
      this.unsent = unsent
      /** Claims the message for sending. False if it was withdrawn. */
      const claim = (): boolean => {
        if (this.unsent !== unsent) return false
        this.unsent = undefined
        return true
      }
      const frame = { type: "message", content, turnId, ...inputOf(run) } as const
      const sending = link.send(frame, { timeout: this.millisUntil(deadline), claim })
      yield* Effect.ensuring(Effect.raceFirst(sending, Deferred.await(unsent.withdrawn)), Effect.sync(claim))
      return !(yield* Deferred.isDone(unsent.withdrawn))
    })
  }
}
