/**
 * What clients send to a running instance: messages, interrupts and answers, in order and each at most once.
 *
 * A message is recorded in the session's history and then sent. Its turn ends whatever happens in between, and no message
 * is sent twice.
 */

import { Deferred, Duration, Effect, Either, FiberId } from "effect"
import { AgentPlatformConnectionError } from "../../../Upstream/AgentPlatform.ts"
import type { TurnEnd } from "../../Protocol/Event.ts"
import {
  type ActivationError,
  answerReceipt,
  type Caller,
  type ClientRun,
  SessionConflict,
  SessionNotActive,
  SessionsBusy
} from "../../Sessions.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import { randomId } from "../Session/SessionRecords.ts"
import * as State from "../Session/SessionState.ts"
import { openTurns, sendTimeout } from "../Settings.ts"
import { CommandQueue, digestOf, type OnceId, onceIdOf, type StoreError } from "./CommandQueue.ts"
import type { InstanceLifecycle } from "./InstanceLifecycle.ts"
import type { InstanceLink } from "./InstanceLink.ts"

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

type CommandError = SessionNotActive | SessionConflict | AgentPlatformConnectionError | StoreError

/** A message on its way to the agent. */
class Message {
  /** A message is claimed for sending, or withdrawn, and not both. */
  private state: "waiting" | "claimed" | "withdrawn" = "waiting"
  readonly withdrawn = Deferred.unsafeMake<void>(FiberId.none)
  /** Completed when its turn is recorded, or will not be. */
  readonly settled = Deferred.unsafeMake<void>(FiberId.none)
  isStarted = false

  constructor(
    readonly turnId: string,
    readonly runId: string | undefined,
    readonly key?: string
  ) {}

  get isWithdrawn(): boolean {
    return this.state === "withdrawn"
  }

  get isWaiting(): boolean {
    return this.state === "waiting"
  }

  get isClaimed(): boolean {
    return this.state === "claimed"
  }

  /** Claims it for sending. False if it was withdrawn, or claimed before. */
  claim(): boolean {
    if (!this.isWaiting) return false
    this.state = "claimed"
    return true
  }

  /** Idempotent, and synchronous: an interruption in between would leave the message neither sent nor withdrawn. */
  withdraw(): void {
    this.state = "withdrawn"
    Deferred.unsafeDone(this.withdrawn, Effect.void)
  }

  settle(): void {
    Deferred.unsafeDone(this.settled, Effect.void)
  }
}

/** A question or a request for approval. */
interface Request {
  readonly turnId: string | undefined
  /** The number of the event that has asked. */
  readonly seq: number
  /** A digest of the answer that counts and of who gave it. */
  answered: string | undefined
}

const withdrawn = State.interrupted("interrupted before the message was sent")

const inputOf = (run: ClientRun | undefined) => (run?.input === undefined ? {} : { input: run.input })

/** Maximum number of open questions and approvals. Above it the oldest are closed, those with an answer first, and answers to them are refused. */
const maxRequests = 1024

/** Maximum number of runs that wait for the messages of others and can be stopped. */
const maxAnnounced = 64

const newMessage = (run: ClientRun | undefined, key?: string): Effect.Effect<Message> =>
  Effect.map(randomId, id => new Message(`turn-${id}`, run?.id, key))

/** The commands of one session. */
export class TurnCommands {
  private readonly commands: CommandQueue
  /** Questions and approvals that wait for an answer, and those that clients have answered. */
  private readonly requests = new Map<string, Request>()
  /** In the order in which they came. Each has a command in progress. */
  private readonly messages = new Set<Message>()
  /** The messages of runs that have waited for those of others, by run, which may be withdrawn before they are sent. */
  private readonly announced = new Map<string, Message>()

  constructor(
    private readonly session: SessionCore,
    private readonly lifecycle: InstanceLifecycle,
    /** Called with each message that is recorded. */
    private readonly onMessage: (content: string) => void
  ) {
    this.commands = new CommandQueue(session)
  }

  /** Called when the agent has asked a question or requested an approval, in the event with this `seq`. */
  openRequest(requestId: string, seq: number, turnId: string | undefined): void {
    this.requests.delete(requestId)
    this.requests.set(requestId, { turnId, seq, answered: undefined })
    if (this.requests.size <= maxRequests) return
    const [first] = this.requests.keys()
    const answered = [...this.requests].find(([, request]) => request.answered !== undefined)
    this.requests.delete(answered?.[0] ?? first!)
  }

  /** Called when a request is resolved. One that a client has answered is kept, as the client may repeat its answer. */
  closeRequest(requestId: string): void {
    if (this.requests.get(requestId)?.answered === undefined) this.requests.delete(requestId)
  }

  closeRequests(): void {
    this.requests.clear()
  }

  /** Waits until the messages that are on their way are recorded, or have failed. A run may be stopped while it waits. */
  settled(run: ClientRun | undefined): Effect.Effect<void> {
    return Effect.gen(this, function* () {
      const messages = [...this.messages]
      if (run !== undefined && messages.length > 0 && messages.every(({ runId }) => runId !== run.id)) {
        const message = yield* newMessage(run)
        if (!this.announced.has(run.id)) this.announced.set(run.id, message)
        const [oldest] = this.announced.keys()
        if (this.announced.size > maxAnnounced) this.announced.delete(oldest!)
      }
      yield* Effect.forEach(messages, message => Deferred.await(message.settled), { discard: true })
    })
  }

  /**
   * Starts a turn with a message, after activating the session. Returns the turn's id. A message that was sent before
   * with the same `clientMessageId` is not sent again, and the result is the same.
   */
  send(
    caller: Pick<Caller, "actor" | "commandId" | "key" | "run">,
    content: string,
    clientMessageId = caller.key
  ): Effect.Effect<string, ActivationError | SessionsBusy> {
    const { actor: sub, run } = caller
    const onceId = onceIdOf(clientMessageId, caller, "message", content)
    const sent = Effect.acquireUseRelease(
      Effect.map(newMessage(run, clientMessageId), fresh => {
        const message = this.takeAnnounced(run) ?? fresh
        this.messages.add(message)
        return message
      }),
      message =>
        this.commands.run<Connected | undefined, string, ActivationError | SessionsBusy>(
          onceId,
          turnId => turnId ?? "",
          {
            prepare: Effect.raceFirst(
              Effect.map(this.lifecycle.activate(), link => this.connected(link)),
              Effect.as(Deferred.await(message.withdrawn), undefined)
            ),
            wait: (connected, before) => (connected === undefined ? before : this.wait(true)(connected, before)),
            run: (connected, done, block) =>
              Effect.suspend(() => {
                message.isStarted = true
                const turn = { turnId: message.turnId, content, sub, clientMessageId, receipt: onceId }
                return this.deliver(message, turn, connected, run, done, block)
              }).pipe(Effect.ensuring(this.forget(message)))
          }
        ),
      // A command that has started continues without its caller.
      message => Effect.suspend(() => (message.isStarted ? Effect.void : this.forget(message)))
    )
    return run === undefined ? sent : Effect.tap(sent, turnId => this.commands.joinRun(run, turnId))
  }

  /** Records a message and sends it, unless it was withdrawn. Its turn ends whatever happens. */
  private deliver(
    message: Message,
    turn: State.Message,
    connected: Connected | undefined,
    run: ClientRun | undefined,
    done: Deferred.Deferred<string, ActivationError | SessionsBusy>,
    block: (reason: StoreError) => void
  ): Effect.Effect<void, SessionConflict | StoreError> {
    const { session } = this
    const { content, receipt, turnId } = turn
    const end = (endOf: (turnId: string) => TurnEnd, onUnavailable = block) =>
      session.journal.updateWithRetry(
        state => State.revokeReceipt(State.endPendingTurns(state, [turnId], endOf), receipt),
        onUnavailable
      )
    return Effect.gen(this, function* () {
      // Before the message: a run that is known without its turn may send it again.
      if (run !== undefined) yield* this.commands.recordRun(run, turnId)
      const wasWithdrawn = connected === undefined || message.isWithdrawn
      const recorded = yield* Effect.either(this.record(wasWithdrawn ? { ...turn, end: withdrawn } : turn))
      message.settle()
      if (Either.isLeft(recorded)) {
        const { left } = recorded
        yield* Deferred.fail(done, left)
        if (left._tag === "SessionNotActive" || left._tag === "SessionsBusy") return
        // The store may have recorded it in spite of the failure.
        const notRecorded = State.errored("not_recorded", "The message could not be recorded, and was not sent")
        if (receipt !== undefined) return yield* end(notRecorded)
        // Only a message with the same id has to wait until the store recovers.
        return yield* Effect.asVoid(
          Effect.forkIn(
            end(notRecorded, () => {}),
            session.shared.scope
          )
        )
      }
      if (wasWithdrawn) return yield* Effect.asVoid(Deferred.succeed(done, turnId))
      this.onMessage(content)
      const sent = yield* Effect.either(this.sendUnlessWithdrawn(connected, message, content, run))
      if (Either.isLeft(sent)) {
        yield* Deferred.fail(done, this.orNotActive(sent.left, true))
        return yield* end(State.errored("not_sent", sent.left.message))
      }
      yield* Deferred.succeed(done, turnId)
      if (sent.right) return
      yield* session.journal.updateWithRetry(state => State.endPendingTurns(state, [turnId], withdrawn), block)
    })
  }

  /** The message of a run that has waited, which is then in progress. */
  private takeAnnounced(run: ClientRun | undefined): Message | undefined {
    const message = run && this.announced.get(run.id)
    if (run !== undefined) this.announced.delete(run.id)
    return message
  }

  private forget(message: Message): Effect.Effect<void> {
    return Effect.sync(() => {
      this.messages.delete(message)
      message.settle()
    })
  }

  /**
   * Asks the agent to end a turn, whose end arrives as an event: by default that of the caller's run, which may have ended,
   * or else the one in progress. A message that has not been sent is withdrawn, which may be asked for again until it is
   * recorded. A caller with a key means only the message with that key.
   */
  interrupt(
    { key, run }: Pick<Caller, "key" | "run">,
    turnId: string | undefined
  ): Effect.Effect<string, CommandError> {
    return Effect.gen(this, function* () {
      const { state } = this.session
      const unsent = [...this.messages].filter(message => !message.isClaimed)
      const isAny = run === undefined && key === undefined
      const isMeant = (message: Message) =>
        isAny ? message.isWaiting : run === undefined ? message.key === key : message.runId === run.id
      const current = isAny ? State.currentTurn(state) : undefined
      const wanted = turnId ?? current ?? unsent.find(isMeant)?.turnId
      const message = unsent.find(message => message.turnId === wanted)
      if (message !== undefined) {
        message.withdraw()
        return message.turnId
      }
      if (run !== undefined && turnId === undefined) return yield* this.interruptRun(run)
      const link = yield* this.running()
      if (wanted === undefined) return yield* new SessionConflict({ message: "No turn is open" })
      if (!state.turns.open.has(wanted)) {
        return yield* new SessionConflict({ message: `Turn ${JSON.stringify(wanted)} is not open` })
      }
      const sending = link.send({ type: "interrupt", turnId: wanted }, { timeout: sendTimeout })
      yield* Effect.mapError(sending, error => this.orNotActive(error, false))
      return wanted
    })
  }

  /** Ends the turn of a run that is recorded, unless it has ended, or withdraws the message of one that waits. */
  private interruptRun(run: ClientRun): Effect.Effect<string, CommandError> {
    return Effect.gen(this, function* () {
      const announced = this.announced.get(run.id)
      // Before the run is looked up, as it may be recorded in the meantime.
      announced?.withdraw()
      const recorded = yield* this.commands.turnOf(run)
      const known = recorded ?? announced?.turnId
      if (known === undefined)
        return yield* new SessionConflict({ message: `There is no run ${JSON.stringify(run.id)}` })
      if (recorded == null || !this.session.state.turns.open.has(recorded)) return known
      this.announced.delete(run.id)
      // Without an instance it ends too.
      return yield* Effect.catchTag(this.interrupt({}, recorded), "SessionNotActive", () => Effect.succeed(recorded))
    })
  }

  /**
   * Sends an answer to a question or an approval that is open. The first answer claims its request, durably and before it
   * is sent: another one is a conflict, and the same one by the same key, run or command is not.
   */
  answer(
    caller: Pick<Caller, "commandId" | "key" | "run">,
    requestId: string,
    answer: unknown,
    clientMessageId?: string
  ): Effect.Effect<void, CommandError> {
    const onceId = onceIdOf(clientMessageId, caller, "answer", requestId, answer)
    const by = clientMessageId ?? caller.key ?? caller.run?.id ?? caller.commandId ?? null
    const digest = digestOf(by, answer)
    const isStopped = this.takeAnnounced(caller.run)?.isWithdrawn === true
    const find = Effect.suspend(() => {
      if (isStopped) return new SessionConflict({ message: "The run was stopped before its answer was sent" })
      const request = this.requests.get(requestId)
      if (request !== undefined) return Effect.succeed(request)
      return new SessionConflict({ message: `No request ${JSON.stringify(requestId)} waits for an answer` })
    })
    return this.commands.run<Connected, void, CommandError>(onceId, () => {}, {
      prepare: Effect.zipLeft(
        Effect.map(this.running(), link => this.connected(link)),
        find
      ),
      wait: this.wait(false),
      run: ({ deadline, link }, done, block) =>
        Effect.gen(this, function* () {
          // It may have been closed in the meantime.
          const request = yield* find
          if (request.answered !== undefined) {
            if (by !== null && request.answered === digest)
              return yield* Effect.asVoid(Deferred.succeed(done, undefined))
            return yield* new SessionConflict({
              message: `The request ${JSON.stringify(requestId)} was answered before`
            })
          }
          const frame = { type: "answer", requestId, answer, ...inputOf(caller.run) } as const
          const sending = Effect.mapError(link.send(frame, { timeout: this.millisUntil(deadline) }), error =>
            this.orNotActive(error, false)
          )
          const sent = yield* Effect.either(Effect.zipRight(this.claim(request, digest, onceId, caller.run), sending))
          yield* Deferred.complete(done, sent)
          if (Either.isLeft(sent)) yield* this.unclaim(request, onceId, block)
        })
    })
  }

  /** Records that a request is answered, and by which run. */
  private claim(request: Request, digest: string, onceId: OnceId, run: ClientRun | undefined) {
    return Effect.gen(this, function* () {
      const { journal, state } = this.session
      request.answered = digest
      yield* journal.update(State.keepReceipt({ id: this.receiptOf(request), digest }))
      if (run !== undefined) {
        yield* this.commands.recordRun(run, request.turnId ?? State.currentTurn(state) ?? null)
      }
      if (onceId !== undefined) yield* journal.update(State.keepReceipt(onceId))
    })
  }

  /** Lets a request be answered again. */
  private unclaim(request: Request, onceId: OnceId, block: (reason: StoreError) => void): Effect.Effect<void> {
    const revoke = (receipt: { readonly id: string } | undefined) =>
      this.session.journal.updateWithRetry(state => State.revokeReceipt(State.withoutEvents(state), receipt), block)
    return Effect.zipRight(
      Effect.forEach([{ id: this.receiptOf(request) }, onceId], revoke, { discard: true }),
      Effect.sync(() => {
        request.answered = undefined
      })
    )
  }

  private receiptOf({ seq }: Request): string {
    return answerReceipt(this.session.journal.history().epoch, seq)
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
  private sendUnlessWithdrawn({ deadline, link }: Connected, message: Message, content: string, run?: ClientRun) {
    const claim = () => message.claim()
    const frame = { type: "message", content, turnId: message.turnId, ...inputOf(run) } as const
    const sending = link.send(frame, { timeout: this.millisUntil(deadline), claim })
    return Effect.raceFirst(sending, Deferred.await(message.withdrawn)).pipe(
      Effect.ensuring(Effect.sync(claim)),
      Effect.map(() => !message.isWithdrawn)
    )
  }
}
