/**
 * What clients send to a running instance: messages, interrupts and answers, in order and each at most once.
 *
 * A message is recorded with the session's history, then sent: its turn ends whatever happens in between, and nothing
 * is ever sent twice.
 */
import { createHash } from "node:crypto"
import { Deferred, Duration, Effect, Either, Option } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { TurnEnd } from "../Protocol/Event.ts"
import { type ActivationError, type Caller, SessionConflict, SessionNotActive, SessionsBusy } from "../Sessions.ts"
import { type Command, CommandQueue, type StoreError } from "./CommandQueue.ts"
import type { InstanceLifecycle } from "./InstanceLifecycle.ts"
import type { InstanceLink } from "./InstanceLink.ts"
import type { SessionCore } from "./SessionCore.ts"
import { randomId } from "./SessionRecords.ts"
import * as State from "./SessionState.ts"
import { openTurns, sendLimit } from "./Settings.ts"
import { titleOf } from "./Titles.ts"

/** The id of a command that is carried out once, with a digest of what was sent. */
type OnceId = { readonly id: string; readonly digest: string } | undefined

/** The client's own id of a command, or else that of a call that may be repeated. */
const onceIdOf = (
  clientMessageId: string | undefined,
  { commandId }: Pick<Caller, "commandId">,
  ...sent: ReadonlyArray<unknown>
): OnceId => {
  const id = clientMessageId ?? commandId
  return id === undefined
    ? undefined
    : { id, digest: createHash("sha256").update(JSON.stringify(sent)).digest("base64url") }
}

/** The connection to an instance, and until when to wait for it, in monotonic milliseconds. */
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

/** A message that is recorded and not sent yet. */
interface Unsent {
  readonly turnId: string
  readonly withdrawn: Deferred.Deferred<void>
}

/** Questions and approvals remembered as open; beyond, the oldest are forgotten, and answers to them refused. */
const maxRequests = 1024

/** The commands of one session. */
export class TurnCommands {
  private readonly queue: CommandQueue
  /** Questions and approvals that wait for an answer. */
  private readonly requests = new Set<string>()
  private unsent: Unsent | undefined
  /** What a title is generated from once the first turn is completed. */
  private firstMessage: string | undefined

  constructor(
    private readonly session: SessionCore,
    private readonly lifecycle: InstanceLifecycle
  ) {
    this.queue = new CommandQueue(session.shared.scope)
  }

  /** The agent has asked a question, or for an approval. */
  openRequest(requestId: string): void {
    this.requests.add(requestId)
    if (this.requests.size > maxRequests) this.requests.delete(this.requests.values().next().value!)
  }

  closeRequest(requestId: string): void {
    this.requests.delete(requestId)
  }

  closeRequests(): void {
    this.requests.clear()
  }

  /**
   * Starts a turn with a message, activating the session first; answers the turn's id. A message that was sent before
   * under the same `clientMessageId` is not sent again: the answer is the same.
   */
  send(
    caller: Pick<Caller, "actor" | "commandId">,
    content: string,
    clientMessageId?: string
  ): Effect.Effect<string, ActivationError | SessionsBusy> {
    const { session } = this
    const sub = caller.actor
    const onceId = onceIdOf(clientMessageId, caller, "message", content)
    return this.once<string, ActivationError | SessionsBusy>(onceId, turnId => turnId ?? "", {
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
          const recorded = yield* Effect.either(this.record({ turnId, content, sub, clientMessageId, receipt: onceId }))
          if (Either.isLeft(recorded)) {
            const { left } = recorded
            yield* Deferred.fail(done, left)
            if (left._tag === "SessionNotActive" || left._tag === "SessionsBusy") return
            // A store that failed may have recorded it all the same.
            const notRecorded = State.errored("not_recorded", "The message could not be recorded, and was not sent")
            if (onceId !== undefined) return yield* end(notRecorded, false)
            // Only a message of the same id has to wait until the store is back.
            return yield* Effect.asVoid(
              Effect.forkIn(
                end(notRecorded, false, () => {}),
                session.shared.scope
              )
            )
          }
          this.setTitle(content)
          const sent = yield* Effect.either(this.sendUnlessWithdrawn(connected, turnId, content))
          if (Either.isLeft(sent)) {
            yield* Deferred.fail(done, this.orNotActive(sent.left, true))
            return yield* end(State.errored("not_sent", sent.left.message), false)
          }
          yield* Deferred.succeed(done, turnId)
          if (!sent.right) yield* end(State.interrupted("interrupted before the message was sent"), true)
        })
    })
  }

  /** Asks the agent to end a turn; its end comes as an event. A message that is not sent yet is withdrawn. */
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
        // In the same step: a fiber that is interrupted in between would leave the message neither sent nor withdrawn.
        Deferred.unsafeDone(unsent.withdrawn, Effect.void)
        return wanted
      }
      const sending = link.send({ type: "interrupt", turnId: wanted }, { within: sendLimit })
      yield* Effect.mapError(sending, error => this.orNotActive(error, false))
      return wanted
    })
  }

  /** Sends an answer to a question or an approval that is open, once for each `clientMessageId`. */
  answer(
    caller: Pick<Caller, "commandId">,
    requestId: string,
    answer: unknown,
    clientMessageId?: string
  ): Effect.Effect<void, AnswerError> {
    const { session } = this
    const onceId = onceIdOf(clientMessageId, caller, "answer", requestId, answer)
    const isOpen = Effect.suspend(() =>
      this.requests.has(requestId)
        ? Effect.void
        : new SessionConflict({ message: `Nothing that goes by ${JSON.stringify(requestId)} waits for an answer` })
    )
    return this.once<void, AnswerError>(onceId, () => {}, {
      prepare: Effect.zipLeft(
        Effect.map(this.running(), link => this.connected(link)),
        isOpen
      ),
      wait: this.wait(false),
      run: ({ deadline, link }, done, block) =>
        Effect.gen(this, function* () {
          // It may have been answered meanwhile.
          yield* isOpen
          const sending = Effect.mapError(
            link.send({ type: "answer", requestId, answer }, { within: this.millisUntil(deadline) }),
            error => this.orNotActive(error, false)
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

  /** Queues a command unless the same was carried out before; then the answer is made from its receipt. */
  private once<Result, E>(
    onceId: OnceId,
    resultOf: (turnId: string | null) => Result,
    { prepare, run, wait }: Command<Connected, Result, E | SessionConflict | StoreUnavailable>
  ): Effect.Effect<Result, E | SessionConflict | StoreUnavailable> {
    const queued = this.queue.run<Connected, Result, E | SessionConflict | StoreUnavailable>({
      prepare,
      wait,
      run: (connected, done, block) =>
        // The same may have been carried out while this one waited.
        Effect.flatMap(this.findReceipt(onceId), before =>
          Option.isSome(before)
            ? Effect.asVoid(Deferred.succeed(done, resultOf(before.value)))
            : run(connected, done, block)
        )
    })
    return Effect.flatMap(
      this.findReceipt(onceId),
      Option.match({ onNone: () => queued, onSome: turnId => Effect.succeed(resultOf(turnId)) })
    )
  }

  /** The turn of an earlier command with the same id, where there was one; a conflict where its content differs. */
  private findReceipt(onceId: OnceId): Effect.Effect<Option.Option<string | null>, SessionConflict | StoreUnavailable> {
    if (onceId === undefined) return Effect.succeedNone
    const { id, digest } = onceId
    const message = `Something else was said as clientMessageId ${JSON.stringify(id)}`
    return Effect.flatMap(
      this.session.shared.events.receipt(this.session.key, id),
      Option.match({
        onNone: () => Effect.succeedNone,
        onSome: found => (found.digest === digest ? Effect.succeedSome(found.turnId) : new SessionConflict({ message }))
      })
    )
  }

  private connected(link: InstanceLink): Connected {
    return { link, deadline: this.session.shared.monotonic() + Duration.toMillis(sendLimit) }
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

  /** The error of a connection that has ended along with its instance. */
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
            message: `It could not be sent to the instance within ${Duration.format(sendLimit)}`
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

  /** Sends a recorded message unless it is withdrawn before, and tells whether it was sent. */
  private sendUnlessWithdrawn({ deadline, link }: Connected, turnId: string, content: string) {
    return Effect.gen(this, function* () {
      const unsent: Unsent = { turnId, withdrawn: yield* Deferred.make<void>() }
      this.unsent = unsent
      /** Decides that it is sent, unless that is decided already. */
      const claim = (): boolean => {
        if (this.unsent !== unsent) return false
        this.unsent = undefined
        return true
      }
      const sending = link.send({ type: "message", content, turnId }, { within: this.millisUntil(deadline), claim })
      yield* Effect.ensuring(Effect.raceFirst(sending, Deferred.await(unsent.withdrawn)), Effect.sync(claim))
      return !(yield* Deferred.isDone(unsent.withdrawn))
    })
  }

  /** Gives the session its first words as a title, until one is generated. */
  private setTitle(content: string): void {
    const { title, titled } = this.session.record
    if (title !== "" || titled) return
    this.firstMessage = content
    this.session.amend({ title: titleOf(content) })
  }

  /** After the first turn: has a title generated unless the client gave one. */
  finishTitle(): void {
    const { firstMessage } = this
    this.firstMessage = undefined
    this.session.amend({ titled: true })
    if (firstMessage !== undefined) this.session.shared.generateTitle(this.session, firstMessage)
  }
}
