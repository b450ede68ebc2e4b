/**
 * The durable state of a session and its updates, without effects: lifecycle, instances and open turns.
 */
import { Either, Option, Schema } from "effect"
import type { ParseError } from "effect/ParseResult"
import * as Turns from "../EventMapping/Turns.ts"
import type { EventBody, TurnEnd } from "../Protocol/Event.ts"
import type { Receipt } from "../SessionEvents.ts"
import { isRunning, type LifecycleEvent, type LifecycleState, next } from "./StateMachine.ts"

/**
 * An instance at the platform, which may exist although its id is not known yet.
 *
 * The key is the `Idempotency-Key` of its creation and is stored before the request is sent: asking again with it
 * returns the id, so that no instance is ever leaked. The id is null until the platform has answered.
 */
export interface Instance {
  readonly key: string
  readonly instanceId: string | null
}

/** An earlier instance that is still to be stopped. */
export interface PendingStop extends Instance {
  /** How often the platform has refused to stop it, or to tell its id. */
  readonly refusals: number
}

/** What a creation was requested with. */
export interface InstanceRequest {
  readonly agentType: string
  /** Written by earlier versions only: the launch configuration is in the session database. */
  readonly deployment?: unknown
  readonly environment?: Readonly<Record<string, string>>
}

/** All that an update of a session depends on. */
export interface SessionState {
  readonly lifecycle: LifecycleState
  readonly instance: Instance | null
  readonly pendingStops: ReadonlyArray<PendingStop>
  readonly turns: Turns.Turns
  /** Kept after a deletion while a creation is unanswered: it cannot be repeated without. */
  readonly request?: InstanceRequest
}

/** A state and the events to publish, which are stored together. */
export interface Update {
  readonly state: SessionState
  readonly events: ReadonlyArray<EventBody>
  /** Stored with the events, so that a message with a client's id is accepted once. */
  readonly receipt?: Receipt | undefined
  /** The id of a receipt to remove. */
  readonly revoked?: string | undefined
}

/** A new session. */
export const initial: SessionState = { lifecycle: "inactive", instance: null, pendingStops: [], turns: Turns.none }

/** A state that is set without an event. */
export const withoutEvents = (state: SessionState): Update => ({ state, events: [] })

/** Applies a lifecycle event and publishes the new state; an event that is ignored changes nothing. */
export const transition = (session: SessionState, event: LifecycleEvent, reason?: string): Update => {
  const lifecycle = next(session.lifecycle, event)
  return lifecycle === undefined
    ? withoutEvents(session)
    : {
        state: { ...session, lifecycle },
        events: [{ type: "session_state", state: lifecycle, ...(reason === undefined ? {} : { reason }) }]
      }
}

/** One update after another. */
export const andThen = (update: Update, f: (state: SessionState) => Update): Update => {
  const { events, state } = f(update.state)
  return { ...update, state, events: [...update.events, ...events] }
}

/** Ends all open turns. */
export const endTurns = (session: SessionState, endOf: (turnId: string) => TurnEnd): Update => {
  const { events, turns } = Turns.endAll(session.turns, endOf)
  return { state: { ...session, turns }, events }
}

/** Ends those of some turns that the agent has not started, as when their messages were not sent. */
export const endPendingTurns = (
  session: SessionState,
  turnIds: ReadonlyArray<string>,
  endOf: (turnId: string) => TurnEnd
): Update => {
  const { events, turns } = Turns.endPending(session.turns, turnIds, endOf)
  return events.length === 0 ? withoutEvents(session) : { state: { ...session, turns }, events }
}

/** Ends a turn as failed. */
export const errored =
  (code: string, message: string, retryable = true) =>
  (turnId: string): TurnEnd => ({ type: "turn_errored", turnId, code, message, retryable })

/** Ends a turn as interrupted. */
export const interrupted =
  (reason: string) =>
  (turnId: string): TurnEnd => ({ type: "turn_interrupted", turnId, reason })

/** A message of a client, before it is sent. */
export interface Message {
  readonly turnId: string
  readonly content: string
  /** Who wrote it. */
  readonly sub: string
  readonly receipt?: Pick<Receipt, "id" | "digest"> | undefined
}

/** Why a message is not accepted. */
export type Refusal = { readonly is: "not_running" } | { readonly is: "full"; readonly open: number }

/** Accepts a message, which starts a turn. */
export const acceptMessage = (
  session: SessionState,
  { content, receipt, sub, turnId }: Message,
  mostOpen: number
): Either.Either<Update, Refusal> => {
  if (!isRunning(session.lifecycle)) return Either.left({ is: "not_running" })
  const { size } = session.turns.open
  const started = {
    type: "turn_started",
    turnId,
    content,
    sub,
    ...(receipt === undefined ? {} : { clientMessageId: receipt.id })
  } as const
  return Option.match(size < mostOpen ? Turns.accept(session.turns, started) : Option.none(), {
    onNone: () => Either.left({ is: "full" as const, open: size }),
    onSome: ({ events, turns }) =>
      Either.right({
        state: { ...session, turns },
        events,
        ...(receipt === undefined ? {} : { receipt: { ...receipt, turnId } })
      })
  })
}

/** Keeps a receipt for a request that starts no turn. */
export const keepReceipt =
  (receipt: Pick<Receipt, "id" | "digest">) =>
  (state: SessionState): Update => ({ ...withoutEvents(state), receipt: { ...receipt, turnId: null } })

/** Removes a receipt: its request has certainly not reached the agent. */
export const revokeReceipt = (update: Update, receipt: Pick<Receipt, "id"> | undefined): Update =>
  receipt === undefined ? update : { ...update, revoked: receipt.id }

/** Moves the instance to those that are to be stopped, so that there may be another one. */
export const releaseInstance = (session: SessionState): SessionState => {
  const { instance, pendingStops } = session
  return instance === null
    ? session
    : { ...session, instance: null, pendingStops: [...pendingStops, { ...instance, refusals: 0 }] }
}

/** Sets the id that the platform has answered for a key. */
export const setInstanceId = (session: SessionState, key: string, instanceId: string): SessionState => {
  const isNew = (known: Instance | null) => known !== null && known.key === key && known.instanceId === null
  const { instance, pendingStops } = session
  if (isNew(instance)) return { ...session, instance: { key, instanceId } }
  if (!pendingStops.some(isNew)) return session
  return { ...session, pendingStops: pendingStops.map(stop => (isNew(stop) ? { ...stop, instanceId } : stop)) }
}

/** Removes the instance of a key: it was stopped, or never existed. */
export const removeInstance = (session: SessionState, key: string): SessionState => ({
  ...session,
  instance: session.instance?.key === key ? null : session.instance,
  pendingStops: session.pendingStops.filter(stop => stop.key !== key)
})

/** Counts that the platform refused to stop an instance. */
export const countRefusal = (session: SessionState, key: string): SessionState => ({
  ...session,
  pendingStops: session.pendingStops.map(stop => (stop.key === key ? { ...stop, refusals: stop.refusals + 1 } : stop))
})

/** The session after a restart of the gateway: its turns have failed, and its instance is to be stopped. */
export const recover = (session: SessionState): Update =>
  andThen(
    endTurns(releaseInstance(session), errored("gateway_restarted", "The gateway was restarted during the turn")),
    state => transition(state, "recovered", "the gateway was restarted")
  )

const InstanceFields = { key: Schema.String, instanceId: Schema.NullOr(Schema.String) }

/** What is stored to recover a session after a crash, in the member names of the first version. */
const RecoveryState = Schema.parseJson(
  Schema.Struct({
    lease: Schema.NullOr(Schema.Struct(InstanceFields)),
    /** Pending stops. Earlier versions stored instance ids alone. */
    debts: Schema.optionalWith(
      Schema.Array(Schema.Union(Schema.String, Schema.Struct({ ...InstanceFields, refusals: Schema.Int }))),
      { exact: true }
    ),
    /** Open turns, and whether clients were told that they have started. */
    turns: Schema.Array(Schema.Tuple(Schema.String, Schema.Literal("accepted", "started"))),
    request: Schema.optionalWith(
      Schema.Struct({
        agentType: Schema.String,
        deployment: Schema.optionalWith(Schema.Unknown, { exact: true }),
        environment: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.String }), { exact: true })
      }),
      { exact: true }
    )
  })
)

const encode = Schema.encodeSync(RecoveryState)
const decode = Schema.decodeUnknownEither(RecoveryState)

/** What must outlive the process, as JSON text; null where there is nothing to recover. */
export const encodeRecoveryState = ({ instance, pendingStops, turns, request }: SessionState): string | null =>
  instance === null && pendingStops.length === 0 && turns.open.size === 0
    ? null
    : encode({
        lease: instance,
        ...(pendingStops.length === 0 ? {} : { debts: pendingStops }),
        turns: [...turns.open].map(([id, status]) => [id, status === "accepted" ? status : "started"] as const),
        ...(request === undefined ? {} : { request })
      })

/** The state of a session whose gateway has ended, as far as it was stored. */
export const decodeRecoveryState = (
  lifecycle: LifecycleState,
  stored: string | null
): Either.Either<SessionState, ParseError> =>
  stored === null
    ? Either.right({ ...initial, lifecycle })
    : Either.map(decode(stored), ({ lease, debts = [], turns, request }) => ({
        lifecycle,
        instance: lease,
        pendingStops: debts.map(stop =>
          typeof stop === "string" ? { key: stop, instanceId: stop, refusals: 0 } : stop
        ),
        turns: { open: new Map(turns), ended: Turns.none.ended },
        ...(request === undefined ? {} : { request })
      }))
