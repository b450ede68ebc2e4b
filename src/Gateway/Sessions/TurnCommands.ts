/**
 * What clients say to a running instance, in the order in which they say it and each thing once.
 *
 * A message is recorded with the session's history, then handed to the network: whatever happens in between, its turn
 * has an end, and nothing is ever sent twice.
 */
import { createHash } from "node:crypto"
import { Deferred, Duration, Effect, Either, Option } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import * as Monotonic from "../../Monotonic.ts"
import { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import * as Turns from "../EventMapping/Turns.ts"
import type { TurnEnd } from "../Protocol/Event.ts"
import { type ActivationError, SessionConflict, SessionNotActive, SessionsBusy } from "../Sessions.ts"
import type { Entity, Outgoing } from "./Entity.ts"
import * as Ids from "./Ids.ts"
import { ensureActive } from "./InstanceLifecycle.ts"
import type { InstanceLink } from "./InstanceLink.ts"
import * as State from "./SessionState.ts"
import { openTurns, sendLimit } from "./Settings.ts"
import { titleOf } from "./Titles.ts"

/** What sending may fail with, beside what bringing the session up may. */
export type TalkError = ActivationError | SessionConflict | SessionsBusy

/** What a client calls what it says, with a digest of that; nothing where it calls it nothing. */
type Call = { readonly id: string; readonly digest: string } | undefined

const callOf = (id: string | undefined, ...said: ReadonlyArray<unknown>): Call =>
  id === undefined ? undefined : { id, digest: createHash("sha256").update(JSON.stringify(said)).digest("base64url") }

/** What the same has led to before, where it was said before; something else under the same id is a conflict. */
const repeated = (
  entity: Entity,
  call: Call
): Effect.Effect<Option.Option<string | null>, SessionConflict | StoreUnavailable> =>
  call === undefined
    ? Effect.succeedNone
    : Effect.flatMap(
        entity.shared.events.receipt(entity.key, call.id),
        Option.match({
          onNone: () => Effect.succeedNone,
          onSome: ({ digest, turnId }) =>
            digest === call.digest
              ? Effect.succeedSome(turnId)
              : new SessionConflict({
                  message: `Something else was said as clientMessageId ${JSON.stringify(call.id)}`
                })
        })
      )

/** The way to an instance, and until when it may be waited for, in milliseconds of monotonic time. */
interface Way {
  readonly link: InstanceLink
  readonly deadline: number
}

const notActive = (mayPass: boolean) =>
  new SessionNotActive({ message: "The session has no running instance", mayPass })

/** A connection that ends along with its instance fails as what asks for an instance that does not run. */
const orNotActive = (entity: Entity, mayPass: boolean) => (error: AgentPlatformConnectionError) =>
  entity.isRunning ? error : notActive(mayPass)

/** The link of a session that runs. */
const running = (entity: Entity): Effect.Effect<InstanceLink, SessionNotActive> =>
  Effect.suspend(() =>
    entity.link !== undefined && entity.isRunning ? Effect.succeed(entity.link) : Effect.fail(notActive(false))
  )

const wayOf = (link: InstanceLink): Effect.Effect<Way> =>
  Effect.map(Monotonic.millis, now => ({ link, deadline: now + Duration.toMillis(sendLimit) }))

const left = ({ deadline }: Way): Effect.Effect<number> =>
  Effect.map(Monotonic.millis, now => Math.max(0, deadline - now))

type StoreAway = StoreBusy | StoreUnavailable

type WaitError = AgentPlatformConnectionError | SessionNotActive | StoreAway

/**
 * Waits for what was said before, and for the connection. While the store is away and something that was said before
 * cannot be brought to its end, nothing behind that could be recorded either: it fails at once.
 */
const wait =
  (entity: Entity, mayPass: boolean) =>
  (way: Way, before: Effect.Effect<void, StoreAway>): Effect.Effect<void, WaitError> =>
    Effect.flatMap(left(way), duration =>
      Effect.timeoutFail(Effect.zipRight(before, way.link.ready), {
        duration,
        onTimeout: () =>
          new AgentPlatformConnectionError({
            operation: "connect",
            reason: "timeout",
            message: `It could not be sent to the instance within ${Duration.format(sendLimit)}`
          })
      })
    ).pipe(Effect.catchTag("AgentPlatformConnectionError", error => Effect.fail(orNotActive(entity, mayPass)(error))))

const refused = (refusal: State.Refusal): SessionNotActive | SessionsBusy =>
  refusal.is === "not_running"
    ? notActive(true)
    : new SessionsBusy({ message: `${refusal.open} turns are open; the limit is ${openTurns}` })

/** Records a message, which begins its turn. */
const record = (entity: Entity, message: State.Message) =>
  Effect.suspend(() => {
    let refusal: State.Refusal | undefined
    return Effect.flatMap(
      entity.journal.update(state =>
        Either.match(State.acceptMessage(state, message, openTurns), {
          onLeft: why => {
            refusal = why
            return State.silently(state)
          },
          onRight: step => {
            refusal = undefined
            return step
          }
        })
      ),
      () => (refusal === undefined ? Effect.void : Effect.fail(refused(refusal)))
    )
  })

const name = (entity: Entity, content: string): void => {
  if (entity.record.title !== "" || entity.record.titled) return
  entity.firstMessage = content
  entity.amend({ title: titleOf(content) })
}

/** Has a message handed over unless it is taken back before that, and tells whether it was. */
const handOver = (entity: Entity, way: Way, turnId: string, content: string) =>
  Effect.gen(function* () {
    const withdrawn = yield* Deferred.make<void>()
    const fate: { is: "waiting" | "handed" | "withdrawn" } = { is: "waiting" }
    const decide = (next: "handed" | "withdrawn") => (): boolean => {
      if (fate.is !== "waiting") return false
      fate.is = next
      entity.outgoing = undefined
      if (next === "withdrawn") Deferred.unsafeDone(withdrawn, Effect.void)
      return true
    }
    const outgoing: Outgoing = { turnId, withdraw: decide("withdrawn") }
    entity.outgoing = outgoing
    const sending = way.link.send(
      { type: "message", content, turnId },
      { within: yield* left(way), claim: decide("handed") }
    )
    yield* Effect.raceFirst(sending, Deferred.await(withdrawn)).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          if (entity.outgoing === outgoing) entity.outgoing = undefined
        })
      )
    )
    return fate.is === "handed"
  })

/** A message of a client. */
export interface Message {
  readonly content: string
  /** Who wrote it. */
  readonly sub: string
  readonly clientMessageId?: string | undefined
}

/**
 * Begins a turn with a message, bringing the session up first; answers the turn's id. One that has an id of its
 * client's and was sent before is not sent again: the answer is what it was.
 */
export const send = (entity: Entity, { clientMessageId, content, sub }: Message): Effect.Effect<string, TalkError> => {
  const call = callOf(clientMessageId, "message", content)
  const inOrder = entity.talk.pass<Way, string, TalkError>({
    ready: Effect.flatMap(ensureActive(entity), wayOf),
    wait: wait(entity, true),
    work: (way, done, holdUp) =>
      Effect.gen(function* () {
        // It may have been sent meanwhile.
        const before = yield* repeated(entity, call)
        if (Option.isSome(before)) return void (yield* Deferred.succeed(done, before.value ?? ""))
        const turnId = yield* Ids.turn
        const end = (endOf: (turnId: string) => TurnEnd, isSent: boolean) =>
          entity.journal.updateWithRetry(
            state => State.revokeReceipt(State.endPendingTurns(state, [turnId], endOf), isSent ? undefined : call),
            holdUp
          )
        const recorded = yield* Effect.either(record(entity, { turnId, content, sub, receipt: call }))
        if (Either.isLeft(recorded)) {
          const { left } = recorded
          yield* Deferred.fail(done, left)
          if (left._tag === "SessionNotActive" || left._tag === "SessionsBusy") return
          // A store that failed may have recorded it all the same.
          const notRecorded = State.errored("not_recorded", "The message could not be recorded, and was not sent")
          if (call !== undefined) return yield* end(notRecorded, false)
          // What is said next need not wait until the store is back; only what has the same id must.
          return yield* Effect.asVoid(Effect.forkIn(end(notRecorded, false), entity.shared.scope))
        }
        name(entity, content)
        const handed = yield* Effect.either(handOver(entity, way, turnId, content))
        if (Either.isLeft(handed)) {
          yield* Deferred.fail(done, orNotActive(entity, true)(handed.left))
          return yield* end(State.errored("not_sent", handed.left.message), false)
        }
        yield* Deferred.succeed(done, turnId)
        if (!handed.right) yield* end(State.interrupted("interrupted before the message was sent"), true)
      })
  })
  return Effect.flatMap(
    repeated(entity, call),
    Option.match({ onNone: () => inOrder, onSome: turnId => Effect.succeed(turnId ?? "") })
  )
}

/** Asks the agent to end a turn; its end comes as an event. A message that still waits is not sent any more. */
export const interrupt = (
  entity: Entity,
  turnId: string | undefined
): Effect.Effect<string, SessionNotActive | SessionConflict | AgentPlatformConnectionError> =>
  Effect.gen(function* () {
    const link = yield* running(entity)
    const { turns } = entity.journal.state()
    const wanted = turnId ?? Turns.current(turns)
    if (wanted === undefined) return yield* new SessionConflict({ message: "No turn is open" })
    if (!turns.open.has(wanted)) {
      return yield* new SessionConflict({ message: `Turn ${JSON.stringify(wanted)} is not open` })
    }
    const { outgoing } = entity
    if (outgoing?.turnId === wanted && outgoing.withdraw()) return wanted
    const sending = link.send({ type: "interrupt", turnId: wanted }, { within: sendLimit })
    yield* Effect.mapError(sending, orNotActive(entity, false))
    return wanted
  })

const isOpen = (entity: Entity, requestId: string): Effect.Effect<void, SessionConflict> =>
  Effect.suspend(() =>
    entity.requests.has(requestId)
      ? Effect.void
      : new SessionConflict({ message: `Nothing that goes by ${JSON.stringify(requestId)} waits for an answer` })
  )

/** An answer of a client. */
export interface Answer {
  readonly requestId: string
  readonly answer: unknown
  readonly clientMessageId?: string | undefined
}

type AnswerError = SessionNotActive | SessionConflict | AgentPlatformConnectionError | StoreBusy | StoreUnavailable

/**
 * Passes on an answer to a question or an approval that is open. One that has an id of its client's and was passed on
 * before is not passed on again.
 */
export const answer = (
  entity: Entity,
  { answer, clientMessageId, requestId }: Answer
): Effect.Effect<void, AnswerError> => {
  const call = callOf(clientMessageId, "answer", requestId, answer)
  const revoke = (onAway: (reason: StoreAway) => void) =>
    entity.journal.updateWithRetry(state => State.revokeReceipt(State.silently(state), call), onAway)
  const inOrder = entity.talk.pass<Way, void, AnswerError>({
    ready: Effect.zipLeft(Effect.flatMap(running(entity), wayOf), isOpen(entity, requestId)),
    wait: wait(entity, false),
    work: (way, done, holdUp) =>
      Effect.gen(function* () {
        const before = yield* repeated(entity, call)
        if (Option.isSome(before)) return void (yield* Deferred.succeed(done, undefined))
        // It may have been answered meanwhile.
        yield* isOpen(entity, requestId)
        const within = yield* left(way)
        const sending = Effect.mapError(
          way.link.send({ type: "answer", requestId, answer }, { within }),
          orNotActive(entity, false)
        )
        const recorded = call === undefined ? Effect.void : entity.journal.update(State.keepReceipt(call))
        const passedOn = yield* Effect.either(Effect.zipRight(recorded, sending))
        yield* Deferred.complete(done, passedOn)
        if (Either.isLeft(passedOn) && call !== undefined) yield* revoke(holdUp)
      })
  })
  return Effect.flatMap(repeated(entity, call), Option.match({ onNone: () => inOrder, onSome: () => Effect.void }))
}
