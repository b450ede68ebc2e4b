/**
 * A session as a pure machine: where it stands, which instance it may have, and which turns are open.
 */
import { Either, Option, Schema } from "effect"
import type { ParseError } from "effect/ParseResult"
import * as Turns from "../EventMapping/Turns.ts"
import type { EventBody, TurnEnd } from "../Protocol/Event.ts"
import type { SessionState } from "../Protocol/Session.ts"
import type { Receipt } from "../SessionEvents.ts"

/** What moves a session from one state to another. */
export type Trigger =
  | "activate"
  | "activated"
  | "deactivate"
  | "deactivated"
  /** The connection to the instance was lost, and is being re-established. */
  | "disconnected"
  | "reconnected"
  /** The instance came to an end without fault. */
  | "ended"
  /** Activation failed, or the instance did. */
  | "failed"
  /** The gateway was started again, and nothing that was under way is. */
  | "recovered"

/** An activation begins anew whatever an earlier one, or its end, has left behind; whoever begins it sees to that. */
const table: Readonly<Record<SessionState, { readonly [T in Trigger]?: SessionState }>> = {
  inactive: { activate: "activating" },
  activating: {
    activate: "activating",
    activated: "active",
    deactivate: "deactivating",
    failed: "error",
    recovered: "inactive"
  },
  active: {
    activate: "activating",
    disconnected: "reconnecting",
    deactivate: "deactivating",
    ended: "inactive",
    failed: "error",
    recovered: "inactive"
  },
  reconnecting: {
    activate: "activating",
    reconnected: "active",
    deactivate: "deactivating",
    ended: "inactive",
    failed: "error",
    recovered: "inactive"
  },
  deactivating: { activate: "activating", deactivated: "inactive", recovered: "inactive" },
  error: { activate: "activating", deactivate: "deactivating" }
}

/** Where a trigger leads from a state; `undefined` where it means nothing there. */
export const next = (state: SessionState, trigger: Trigger): SessionState | undefined => table[state][trigger]

/** Whether a session in this state has an instance that takes messages, now or in a moment. */
export const isRunning = (state: SessionState): boolean => state === "active" || state === "reconnecting"

/**
 * What may live at the platform on the session's account.
 *
 * The key is that of the creation (`Idempotency-Key`), stored before it is asked for: whoever knows it can learn the
 * id, so that no instance is ever left behind nameless. The id is null until the platform told it.
 */
export interface Lease {
  readonly key: string
  readonly instanceId: string | null
}

/** An earlier lease: what lives by it is still to be given back. */
export interface Debt extends Lease {
  /** How often the platform has said that it will not have it, whatever it knows of it. */
  readonly refusals: number
}

/** What an instance was asked for with. */
export interface Request {
  readonly agentType: string
  /** Earlier versions have kept the launch configuration here; it lies in the session database by now. */
  readonly deployment?: unknown
  readonly environment?: Readonly<Record<string, string>>
}

/** All that a session has to remember from one step to the next. */
export interface Standing {
  readonly state: SessionState
  readonly lease: Lease | null
  /** Earlier leases that the platform has not taken back yet, each with a key of its own. */
  readonly debts: ReadonlyArray<Debt>
  readonly turns: Turns.Turns
  /** Kept where the session was deleted while a creation was unanswered, which nobody could repeat otherwise. */
  readonly request?: Request
}

/** What a step makes of a session, and what it tells its subscribers. */
export interface Step {
  readonly standing: Standing
  readonly events: ReadonlyArray<EventBody>
  /** Stored along with the events: what a client has said under an id of its own. */
  readonly receipt?: Receipt | undefined
  /** The id of a receipt that does not hold any more. */
  readonly revoked?: string | undefined
}

/** A session that nothing has happened to. */
export const initial: Standing = { state: "inactive", lease: null, debts: [], turns: Turns.none }

/** Nothing changes and nothing is told. */
export const stay = (standing: Standing): Step => ({ standing, events: [] })

/** Moves a session, where the trigger means something, and tells of it. */
export const move = (standing: Standing, trigger: Trigger, reason?: string): Step => {
  const state = next(standing.state, trigger)
  return state === undefined
    ? stay(standing)
    : {
        standing: { ...standing, state },
        events: [{ type: "session_state", state, ...(reason === undefined ? {} : { reason }) }]
      }
}

/** Ends all open turns. */
export const endTurns = (standing: Standing, endOf: (turnId: string) => TurnEnd): Step => {
  const { turns, events } = Turns.endAll(standing.turns, endOf)
  return { standing: { ...standing, turns }, events }
}

/** A message of a client, before it is sent. */
export interface Message {
  readonly turnId: string
  readonly content: string
  /** Who wrote it. */
  readonly sub: string
  /** What the client calls it, with a digest of what it says. */
  readonly receipt?: Pick<Receipt, "id" | "digest"> | undefined
}

/** Why a message is not taken: there is no instance for it, or as many turns are open as there may be. */
export type Refusal = { readonly is: "not_running" } | { readonly is: "full"; readonly open: number }

/**
 * Takes a message up, which begins a turn. From then on it has its end whatever happens, and whoever reads the history
 * finds what was written.
 */
export const accept = (
  standing: Standing,
  { content, receipt, sub, turnId }: Message,
  most: number
): Either.Either<Step, Refusal> => {
  if (!isRunning(standing.state)) return Either.left({ is: "not_running" })
  const { size } = standing.turns.open
  const started = {
    type: "turn_started",
    turnId,
    content,
    sub,
    ...(receipt === undefined ? {} : { clientMessageId: receipt.id })
  } as const
  return Option.match(size < most ? Turns.accept(standing.turns, started) : Option.none(), {
    onNone: () => Either.left({ is: "full" as const, open: size }),
    onSome: ({ events, turns }) =>
      Either.right({
        standing: { ...standing, turns },
        events,
        ...(receipt === undefined ? {} : { receipt: { ...receipt, turnId } })
      })
  })
}

/** Keeps a receipt for what begins no turn. */
export const keep =
  (receipt: Pick<Receipt, "id" | "digest">) =>
  (standing: Standing): Step => ({ ...stay(standing), receipt: { ...receipt, turnId: null } })

/** Lets go of a receipt: what it was for has certainly not reached the agent. */
export const revoke = (step: Step, receipt: Pick<Receipt, "id"> | undefined): Step =>
  receipt === undefined ? step : { ...step, revoked: receipt.id }

/** Ends those of some turns that the agent has not begun, such as those whose messages were not sent. */
export const endWaiting = (
  standing: Standing,
  turnIds: ReadonlyArray<string>,
  endOf: (turnId: string) => TurnEnd
): Step => {
  const { turns, events } = Turns.endWaiting(standing.turns, turnIds, endOf)
  return events.length === 0 ? stay(standing) : { standing: { ...standing, turns }, events }
}

/** What becomes of messages that were lost with a connection, or not: nobody knows. */
export const loseMessages = (standing: Standing, turnIds: ReadonlyArray<string>): Step =>
  endWaiting(
    standing,
    turnIds,
    errored(
      "delivery_unknown",
      "The connection was lost, and it is not known whether the message has reached the agent"
    )
  )

/** One step after another. */
export const andThen = (step: Step, f: (standing: Standing) => Step): Step => {
  const { standing, events } = f(step.standing)
  return { ...step, standing, events: [...step.events, ...events] }
}

/** Ends a turn as failed. */
export const errored =
  (code: string, message: string, retryable = true) =>
  (turnId: string): TurnEnd => ({ type: "turn_errored", turnId, code, message, retryable })

/** Ends a turn as interrupted. */
export const interrupted =
  (reason: string) =>
  (turnId: string): TurnEnd => ({ type: "turn_interrupted", turnId, reason })

/** Puts the lease among what is still to be given back, so that there may be another one. */
export const owe = (standing: Standing): Standing => {
  const { lease, debts } = standing
  return lease === null ? standing : { ...standing, lease: null, debts: [...debts, { ...lease, refusals: 0 }] }
}

/** Notes the instance that a key has led to. */
export const learn = (standing: Standing, key: string, instanceId: string): Standing => {
  const isNews = (lease: Lease | null) => lease !== null && lease.key === key && lease.instanceId === null
  const { lease, debts } = standing
  if (isNews(lease)) return { ...standing, lease: { key, instanceId } }
  if (!debts.some(isNews)) return standing
  return { ...standing, debts: debts.map(debt => (isNews(debt) ? { ...debt, instanceId } : debt)) }
}

/** Strikes out what a key has led to: it was given back, or there never was anything. */
export const acquit = (standing: Standing, key: string): Standing => ({
  ...standing,
  lease: standing.lease?.key === key ? null : standing.lease,
  debts: standing.debts.filter(debt => debt.key !== key)
})

/** Notes that the platform refuses to do anything about a debt. */
export const refuse = (standing: Standing, key: string): Standing => ({
  ...standing,
  debts: standing.debts.map(debt => (debt.key === key ? { ...debt, refusals: debt.refusals + 1 } : debt))
})

/** What a session becomes whose gateway died: its turns have failed, and what it leased is still to be given back. */
export const recover = (standing: Standing): Step =>
  andThen(
    endTurns(owe(standing), errored("gateway_restarted", "The gateway was restarted during the turn")),
    standing => move(standing, "recovered", "the gateway was restarted")
  )

const LeaseFields = { key: Schema.String, instanceId: Schema.NullOr(Schema.String) }

const Bookmark = Schema.parseJson(
  Schema.Struct({
    lease: Schema.NullOr(Schema.Struct(LeaseFields)),
    /** Absent where there are none. Earlier versions knew debts by the instance's id alone. */
    debts: Schema.optionalWith(
      Schema.Array(Schema.Union(Schema.String, Schema.Struct({ ...LeaseFields, refusals: Schema.Int }))),
      { exact: true }
    ),
    /** Open turns, and whether clients were told that they have begun. */
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

const encodeBookmark = Schema.encodeSync(Bookmark)
const decodeBookmark = Schema.decodeUnknownEither(Bookmark)

/** What of a standing must outlive the process, or null where that is nothing. */
export const toBookmark = ({ lease, debts, turns, request }: Standing): string | null =>
  lease === null && debts.length === 0 && turns.open.size === 0
    ? null
    : encodeBookmark({
        lease,
        ...(debts.length === 0 ? {} : { debts }),
        turns: [...turns.open].map(([turnId, phase]) => [turnId, phase === "accepted" ? phase : "started"] as const),
        ...(request === undefined ? {} : { request })
      })

/** The standing of a session whose gateway died, as far as its bookmark tells. */
export const fromBookmark = (state: SessionState, bookmark: string | null): Either.Either<Standing, ParseError> =>
  Either.map(
    bookmark === null ? decodeBookmark('{"lease":null,"turns":[]}') : decodeBookmark(bookmark),
    ({ lease, debts = [], turns, request }) => ({
      state,
      lease,
      debts: debts.map(debt => (typeof debt === "string" ? { key: debt, instanceId: debt, refusals: 0 } : debt)),
      turns: { open: new Map(turns), ended: Turns.none.ended },
      ...(request === undefined ? {} : { request })
    })
  )
