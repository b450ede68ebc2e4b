/**
 * The state of a session and its updates: lifecycle (a state machine), instances and turns. Pure. Each turn has one start and exactly one
 * end, whatever the platform sends.
 */
import { Either, Schema } from "effect"
import type { ParseError } from "effect/ParseResult"
import type { EventBody, EventBodyOf, TurnEnd } from "../../Protocol/Event.ts"
import type * as Fields from "../../Protocol/Fields.ts"
import type { Receipt } from "../../SessionEvents.ts"

/** The state of a session that clients see. */
export type LifecycleState = Fields.SessionState

/** An event that can change the state of a session. */
export type LifecycleEvent =
  /** A new instance is requested, whatever the outcome of the previous one. */
  | "activate"
  | "activated"
  | "deactivate"
  | "deactivated"
  /** The connection to the instance was lost and is being re-established. */
  | "disconnected"
  | "reconnected"
  /** The instance has stopped without an error. */
  | "ended"
  /** The activation or the instance has failed. */
  | "failed"
  /** The gateway was restarted. No instance is running any longer. */
  | "recovered"

const live = { activate: "activating", deactivate: "deactivating", failed: "error", recovered: "inactive" } as const

/** State x event -> state. An event without an entry is ignored in that state. Only this table changes the state. */
export const transitions: Readonly<Record<LifecycleState, { readonly [E in LifecycleEvent]?: LifecycleState }>> = {
  inactive: { activate: "activating" },
  activating: { ...live, activated: "active" },
  active: { ...live, disconnected: "reconnecting", ended: "inactive" },
  reconnecting: { ...live, reconnected: "active", ended: "inactive" },
  deactivating: { activate: "activating", deactivated: "inactive", recovered: "inactive" },
  error: { activate: "activating", deactivate: "deactivating" }
}

/**
 * An instance at the platform. It may exist although its id is not known yet.
 *
 * The key is the `Idempotency-Key` of its creation and is stored before the request is sent. A repeated request with the
 * key returns the id, so that no instance is leaked. The id is null until the platform has answered.
 */
export interface Instance {
  readonly key: string
  readonly instanceId: string | null
}

/** An earlier instance that is still to be stopped. */
export interface PendingStop extends Instance {
  /** How often the platform has refused to stop it or to return its id. */
  readonly refusals: number
}

/** `announced`: the message is stored and `turn_started` is published. `started`: the agent has started the turn. */
export type TurnStatus = "announced" | "started"

/** The turns of a session. */
export interface Turns {
  /** Turns that have not ended, oldest first. */
  readonly open: ReadonlyMap<string, TurnStatus>
  /** The newest ended turns. They cannot start or end again. */
  readonly ended: ReadonlySet<string>
}

/** Maximum number of open turns, and of ended turns that are kept. */
export const maxTurns = 256

/** The state of a session, on which its updates depend. */
export interface SessionState {
  readonly lifecycle: LifecycleState
  readonly instance: Instance | null
  readonly pendingStops: ReadonlyArray<PendingStop>
  readonly turns: Turns
  /** The state that the instance has reported since the last transition. It is not stored. */
  readonly reported?: LifecycleState | undefined
  /** Kept after a deletion while the outcome of a creation is unknown, to repeat the creation. */
  readonly request?: { readonly agentType: string }
}

/** A state and the events to publish, which are stored together. */
export interface Update {
  readonly state: SessionState
  readonly events: ReadonlyArray<EventBody>
  /** Stored in the same transaction, so that a message with a client's id is accepted once. */
  readonly receipt?: Receipt | undefined
  /** The id of a receipt to remove. */
  readonly revoked?: string | undefined
}

/** A new session. */
export const initial: SessionState = {
  lifecycle: "inactive",
  instance: null,
  pendingStops: [],
  turns: { open: new Map(), ended: new Set() }
}

/** A state that is set without an event. */
export const withoutEvents = (state: SessionState): Update => ({ state, events: [] })

/** Applies a lifecycle event and publishes the new state. An event that is ignored changes nothing. */
export const transition = (session: SessionState, event: LifecycleEvent, reason?: string): Update => {
  const lifecycle = transitions[session.lifecycle][event]
  return lifecycle === undefined
    ? withoutEvents(session)
    : {
        state: { ...session, lifecycle, reported: undefined },
        events: [{ type: "session_state", state: lifecycle, ...(reason === undefined ? {} : { reason }) }]
      }
}

/** Combines two updates in sequence. */
export const andThen = (update: Update, f: (state: SessionState) => Update): Update => {
  const { events, state } = f(update.state)
  return { ...update, state, events: [...update.events, ...events] }
}

/** Whether a session has an instance that takes messages, possibly after a reconnection. */
export const isRunning = ({ lifecycle }: Pick<SessionState, "lifecycle">): boolean =>
  lifecycle === "active" || lifecycle === "reconnecting"

/** The turn in progress: the one that started last, or else the oldest pending one. */
export const currentTurn = ({ turns: { open } }: SessionState): string | undefined => {
  const started = [...open].filter(([, status]) => status === "started").at(-1)
  return started === undefined ? open.keys().next().value : started[0]
}

/** Whether a turn is open and the agent has not started it. */
export const isPending = ({ turns: { open } }: SessionState, turnId: string): boolean =>
  open.get(turnId) === "announced"

const setTurn = (session: SessionState, turnId: string, status: TurnStatus): SessionState => ({
  ...session,
  turns: { ...session.turns, open: new Map([...session.turns.open, [turnId, status]]) }
})

/** The agent starts a turn. The start is published unless it was published with the message. */
const startTurn = (session: SessionState, body: EventBodyOf<"turn_started">): Update => {
  const { ended, open } = session.turns
  const status = open.get(body.turnId)
  const isRefused = status === undefined && (ended.has(body.turnId) || open.size >= maxTurns)
  return status === "started" || isRefused
    ? withoutEvents(session)
    : { state: setTurn(session, body.turnId, "started"), events: status === "announced" ? [] : [body] }
}

const endTurn = (session: SessionState, body: TurnEnd): Update => {
  const { turnId } = body
  const { ended, open } = session.turns
  if (!open.has(turnId)) return withoutEvents(session)
  const turns = {
    open: new Map([...open].filter(([other]) => other !== turnId)),
    ended: new Set([...ended, turnId].slice(-maxTurns))
  }
  return { state: { ...session, turns }, events: [body] }
}

/**
 * Applies an event of the agent to the turns.
 *
 * A second start is dropped, and so is an end of a turn that is not open. Other events are passed on even after the end
 * of their turn: a late result is still true.
 */
export const applyEvent = (session: SessionState, body: EventBody): Update => {
  switch (body.type) {
    case "turn_started":
      return startTurn(session, body)
    case "turn_completed":
    case "turn_errored":
    case "turn_interrupted":
      return endTurn(session, body)
    default:
      return { state: session, events: [body] }
  }
}

/**
 * Applies a state that the instance reports, which does not change the state of the session. It is published only if it
 * is new to clients. The start of an instance is not: its activation has already published `activating` and `active`.
 */
export const applyReport = (session: SessionState, body: EventBodyOf<"session_state">): Update => {
  const { reason, state } = body
  const isStart = session.reported === undefined && (state === "activating" || state === "active")
  const isKnown = reason === undefined && (isStart || state === session.reported)
  // After a known `activating`, the `active` that follows is known too.
  const next = isKnown && state === "activating" ? session : { ...session, reported: state }
  return { state: next, events: isKnown ? [] : [body] }
}

/** Ends turns, by default all that are open, oldest first. */
export const endTurns = (
  session: SessionState,
  endOf: (turnId: string) => TurnEnd,
  turnIds: ReadonlyArray<string> = [...session.turns.open.keys()]
): Update =>
  turnIds.reduce((update, turnId) => andThen(update, state => endTurn(state, endOf(turnId))), withoutEvents(session))

/** Ends the given turns that the agent has not started, for example if their messages were not sent. */
export const endPendingTurns = (
  session: SessionState,
  turnIds: ReadonlyArray<string>,
  endOf: (turnId: string) => TurnEnd
): Update =>
  endTurns(
    session,
    endOf,
    turnIds.filter(turnId => isPending(session, turnId))
  )

/** The end of a failed turn. */
export const errored =
  (code: string, message: string, retryable = true) =>
  (turnId: string): TurnEnd => ({ type: "turn_errored", turnId, code, message, retryable })

/** The end of an interrupted turn. */
export const interrupted =
  (reason: string) =>
  (turnId: string): TurnEnd => ({ type: "turn_interrupted", turnId, reason })

/** A message of a client, before it is sent. */
export interface Message {
  readonly turnId: string
  readonly content: string
  /** The author. */
  readonly sub: string
  /** The client's own id of the message. */
  readonly clientMessageId?: string | undefined
  readonly receipt?: Pick<Receipt, "id" | "digest"> | undefined
  /** The end of its turn, if it was withdrawn. It needs no instance then. */
  readonly end?: (turnId: string) => TurnEnd
}

/** Why a message is not accepted. */
export type Refusal = { readonly is: "not_running" } | { readonly is: "full"; readonly open: number }

/** Accepts a message, which starts a turn, unless the session has no instance or too many open turns. */
export const acceptMessage = (
  session: SessionState,
  { clientMessageId, content, end, receipt, sub, turnId }: Message,
  maxOpen: number
): Either.Either<Update, Refusal> => {
  if (end === undefined && !isRunning(session)) return Either.left({ is: "not_running" })
  const { ended, open } = session.turns
  if (open.size >= maxOpen || open.has(turnId) || ended.has(turnId)) return Either.left({ is: "full", open: open.size })
  const named = clientMessageId === undefined ? {} : { clientMessageId }
  const accepted: Update = {
    state: setTurn(session, turnId, "announced"),
    events: [{ type: "turn_started", turnId, content, sub, ...named }],
    ...(receipt === undefined ? {} : { receipt: { ...receipt, turnId } })
  }
  return Either.right(end === undefined ? accepted : andThen(accepted, state => endTurn(state, end(turnId))))
}

/** Keeps a receipt for a request that starts no turn. */
export const keepReceipt =
  (receipt: Pick<Receipt, "id" | "digest">) =>
  (state: SessionState): Update => ({ ...withoutEvents(state), receipt: { ...receipt, turnId: null } })

/** Keeps the receipt of a run, by which its turn is found. */
export const keepRun =
  (receipt: Receipt) =>
  (state: SessionState): Update => ({ ...withoutEvents(state), receipt })

/** Removes the receipt of a request that has not reached the agent. */
export const revokeReceipt = (update: Update, receipt: Pick<Receipt, "id"> | undefined): Update =>
  receipt === undefined ? update : { ...update, revoked: receipt.id }

/** Moves the instance to the pending stops, so that another one can be created. */
export const releaseInstance = (session: SessionState): SessionState => {
  const { instance, pendingStops } = session
  return instance === null
    ? session
    : { ...session, instance: null, pendingStops: [...pendingStops, { ...instance, refusals: 0 }] }
}

/** Sets the id that the platform has returned for a key. */
export const setInstanceId = (session: SessionState, key: string, instanceId: string): SessionState => {
  const isNew = (known: Instance | null) => known !== null && known.key === key && known.instanceId === null
  const { instance, pendingStops } = session
  if (isNew(instance)) return { ...session, instance: { key, instanceId } }
  if (!pendingStops.some(isNew)) return session
  return { ...session, pendingStops: pendingStops.map(stop => (isNew(stop) ? { ...stop, instanceId } : stop)) }
}

/** Removes the instance of a key, which was stopped or never existed. */
export const removeInstance = (session: SessionState, key: string): SessionState => ({
  ...session,
  instance: session.instance?.key === key ? null : session.instance,
  pendingStops: session.pendingStops.filter(stop => stop.key !== key)
})

/** Counts a refusal of the platform to stop an instance. */
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

const RecoveryState = Schema.parseJson(
  Schema.Struct({
    instance: Schema.NullOr(Schema.Struct(InstanceFields)),
    pendingStops: Schema.optionalWith(Schema.Array(Schema.Struct({ ...InstanceFields, refusals: Schema.Int })), {
      exact: true
    }),
    /** The ids of open turns, oldest first. */
    turns: Schema.Array(Schema.String),
    request: Schema.optionalWith(Schema.Struct({ agentType: Schema.String }), { exact: true })
  })
)

const decodeText = Schema.decodeUnknownEither(RecoveryState)

/** The part of the state that must outlive the process, as JSON text; null if there is nothing to recover. */
export const encodeRecovery = ({ instance, pendingStops, turns, request }: SessionState): string | null =>
  instance === null && pendingStops.length === 0 && turns.open.size === 0
    ? null
    : // Without its schema: it is made with each event, such as a text delta, and in general the same as before.
      JSON.stringify({
        instance,
        ...(pendingStops.length === 0 ? {} : { pendingStops }),
        turns: [...turns.open.keys()],
        ...(request === undefined ? {} : { request })
      } satisfies typeof RecoveryState.Type)

/** The stored state of a session whose gateway has ended. */
export const decodeRecovery = (
  lifecycle: LifecycleState,
  stored: string | null
): Either.Either<SessionState, ParseError> =>
  stored === null
    ? Either.right({ ...initial, lifecycle })
    : Either.map(decodeText(stored), ({ instance, pendingStops = [], request, turns }) => ({
        ...{ lifecycle, instance, pendingStops },
        turns: { open: new Map(turns.map(id => [id, "started"] as const)), ended: initial.turns.ended },
        ...(request === undefined ? {} : { request })
      }))
