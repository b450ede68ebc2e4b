/**
 * A session as a pure machine: where it stands, which instance it may have, and which turns are open.
 */
import { Either, Schema } from "effect"
import type { ParseError } from "effect/ParseResult"
import * as Turns from "./EventMapping/Turns.ts"
import type { EventBody, TurnEnd } from "./Protocol/Event.ts"
import type { SessionState } from "./Protocol/Session.ts"

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

/** All that a session has to remember from one step to the next. */
export interface Standing {
  readonly state: SessionState
  readonly lease: Lease | null
  /** Instances of earlier leases that the platform has not taken back yet. */
  readonly debts: ReadonlyArray<string>
  readonly turns: Turns.Turns
}

/** What a step makes of a session, and what it tells its subscribers. */
export interface Step {
  readonly standing: Standing
  readonly events: ReadonlyArray<EventBody>
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

/** One step after another. */
export const andThen = (step: Step, f: (standing: Standing) => Step): Step => {
  const { standing, events } = f(step.standing)
  return { standing, events: [...step.events, ...events] }
}

/** Ends a turn as failed. */
export const errored =
  (code: string, message: string, retryable = true) =>
  (turnId: string): TurnEnd => ({ type: "turn_errored", turnId, code, message, retryable })

/** Ends a turn as interrupted. */
export const interrupted =
  (reason: string) =>
  (turnId: string): TurnEnd => ({ type: "turn_interrupted", turnId, reason })

/** Puts the instance of a lease among those that are still to be given back, so that there may be another one. */
export const owe = (standing: Standing, instanceId: string): Standing =>
  standing.lease?.instanceId === instanceId
    ? { ...standing, lease: null, debts: [...standing.debts, instanceId] }
    : standing

/** Strikes out an instance that was given back. */
export const acquit = (standing: Standing, instanceId: string): Standing => ({
  ...standing,
  debts: standing.debts.filter(other => other !== instanceId)
})

/** What a session becomes whose gateway died: its turns have failed, and what it leased is still to be given back. */
export const recover = (standing: Standing): Step =>
  andThen(endTurns(standing, errored("gateway_restarted", "The gateway was restarted during the turn")), standing =>
    move(standing, "recovered", "the gateway was restarted")
  )

const Bookmark = Schema.parseJson(
  Schema.Struct({
    lease: Schema.NullOr(Schema.Struct({ key: Schema.String, instanceId: Schema.NullOr(Schema.String) })),
    /** Absent where there are none. */
    debts: Schema.optionalWith(Schema.Array(Schema.String), { exact: true }),
    /** Open turns with how far they have come. */
    turns: Schema.Array(Schema.Tuple(Schema.String, Schema.Literal("accepted", "started")))
  })
)

const encodeBookmark = Schema.encodeSync(Bookmark)
const decodeBookmark = Schema.decodeUnknownEither(Bookmark)

/** What of a standing must outlive the process, or null where that is nothing. */
export const toBookmark = ({ lease, debts, turns }: Standing): string | null =>
  lease === null && debts.length === 0 && turns.open.size === 0
    ? null
    : encodeBookmark({ lease, ...(debts.length === 0 ? {} : { debts }), turns: [...turns.open] })

/** The standing of a session whose gateway died, as far as its bookmark tells. */
export const fromBookmark = (state: SessionState, bookmark: string | null): Either.Either<Standing, ParseError> =>
  Either.map(bookmark === null ? decodeBookmark('{"lease":null,"turns":[]}') : decodeBookmark(bookmark), kept => ({
    state,
    lease: kept.lease,
    debts: kept.debts ?? [],
    turns: { open: new Map(kept.turns), ended: Turns.none.ended }
  }))
