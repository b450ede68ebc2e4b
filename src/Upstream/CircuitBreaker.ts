/**
 * When to stop calling an upstream service that fails, and when to try it again: pure transitions over explicit
 * states. Times are monotonic milliseconds, given by the caller.
 */
import * as CallWindow from "./CallWindow.ts"

/** When a breaker opens, and for how long. */
export interface Settings {
  /** Opens at this many failures in a row. */
  readonly consecutiveFailures: number
  /** Opens at `failureRatio` of the calls in the window, once there are `minimumCalls`. */
  readonly minimumCalls: number
  readonly failureRatio: number
  readonly window: CallWindow.WindowSettings
  /** How long it stays open the first time; doubled, up to the longest, each time that a probe fails. */
  readonly cooldownMillis: number
  readonly longestCooldownMillis: number
  /** A probe that has not come back by then has failed; longer than any single try may take, streams excepted. */
  readonly probeMillis: number
  /** How long others are told to stay away while a probe is under way: most come back soon. */
  readonly askAgainMillis: number
}

export const defaults: Settings = {
  consecutiveFailures: 5,
  minimumCalls: 20,
  failureRatio: 0.5,
  window: { slotMillis: 1000, slots: 30 },
  cooldownMillis: 10_000,
  longestCooldownMillis: 60_000,
  probeMillis: 30_000,
  askAgainMillis: 1000
}

/**
 * What a call may go ahead with, and gives back with its verdict.
 *
 * The epoch changes with every transition and with every probe: a verdict from an earlier epoch says nothing about
 * the present state and is ignored.
 */
export interface Permit {
  readonly epoch: number
}

/** Calls go through and are counted. */
export interface Closed {
  readonly _tag: "closed"
  readonly epoch: number
  readonly failuresInRow: number
  readonly calls: CallWindow.CallWindow
}

/** Calls are rejected until the cooldown is over. */
export interface Open {
  readonly _tag: "open"
  readonly epoch: number
  readonly until: number
  readonly cooldownMillis: number
}

/** One call at a time goes through, to find out. */
export interface HalfOpen {
  readonly _tag: "half_open"
  readonly epoch: number
  /** The cooldown that has just passed. */
  readonly cooldownMillis: number
  /** By when the probe under way must be back; `undefined` while there is none. */
  readonly probeDeadline: number | undefined
}

/** The state of a breaker. */
export type State = Closed | Open | HalfOpen

/** How a call ended: `abandoned` says nothing about the upstream, as when the caller left. */
export type Verdict = "success" | "failure" | "abandoned"

/** The state to begin with. */
export const initial: Closed = { _tag: "closed", epoch: 0, failuresInRow: 0, calls: CallWindow.empty }

const close = (state: State): Closed => ({ ...initial, epoch: state.epoch + 1 })

const open = (state: State, now: number, cooldownMillis: number): Open => ({
  _tag: "open",
  epoch: state.epoch + 1,
  until: now + cooldownMillis,
  cooldownMillis
})

const openLonger = (state: HalfOpen, now: number, settings: Settings): Open =>
  open(state, now, Math.min(state.cooldownMillis * 2, settings.longestCooldownMillis))

/**
 * The one transition that the mere passing of time brings about, or the same state where there is none.
 *
 * Apply it until nothing changes: a probe that hung may have reopened the breaker long ago.
 */
export const elapse = (state: State, now: number, settings: Settings): State => {
  if (state._tag === "open" && now >= state.until) {
    return {
      _tag: "half_open",
      epoch: state.epoch + 1,
      cooldownMillis: state.cooldownMillis,
      probeDeadline: undefined
    }
  }
  if (state._tag === "half_open" && state.probeDeadline !== undefined && now >= state.probeDeadline) {
    return openLonger(state, state.probeDeadline, settings)
  }
  return state
}

/** The state at a time, with all that time alone brings about. */
export const at = (state: State, now: number, settings: Settings): State => {
  const next = elapse(state, now, settings)
  return next === state ? state : at(next, now, settings)
}

/** Either a permit, or how long to stay away. */
export type Admission =
  | { readonly _tag: "admitted"; readonly permit: Permit }
  | { readonly _tag: "rejected"; readonly retryAfterMillis: number }

const admitted = (state: State): Admission => ({ _tag: "admitted", permit: { epoch: state.epoch } })

const rejected = (until: number, now: number): Admission => ({
  _tag: "rejected",
  retryAfterMillis: Math.max(0, until - now)
})

/** When time alone will bring about the next transition; `undefined` where it never does. */
export const nextChange = (state: State): number | undefined => {
  if (state._tag === "open") return state.until
  return state._tag === "half_open" ? state.probeDeadline : undefined
}

/**
 * Asks for a call aside: one that is rejected while the breaker is open, and that takes nobody's place as a probe while
 * it is half open. Its permit is for `settleAside`.
 */
export const admitAside = (before: State, now: number, settings: Settings): readonly [Admission, State] => {
  const state = at(before, now, settings)
  return [state._tag === "open" ? rejected(state.until, now) : admitted(state), state]
}

/** Asks for a call. */
export const admit = (before: State, now: number, settings: Settings): readonly [Admission, State] => {
  const state = at(before, now, settings)
  switch (state._tag) {
    case "closed":
      return [admitted(state), state]
    case "open":
      return [rejected(state.until, now), state]
    case "half_open": {
      if (state.probeDeadline !== undefined) {
        return [rejected(Math.min(state.probeDeadline, now + settings.askAgainMillis), now), state]
      }
      const probing = { ...state, epoch: state.epoch + 1, probeDeadline: now + settings.probeMillis }
      return [admitted(probing), probing]
    }
  }
}

const settleClosed = (state: Closed, failed: boolean, now: number, settings: Settings): Closed | Open => {
  const calls = CallWindow.add(state.calls, settings.window, now, { total: 1, marked: failed ? 1 : 0 })
  const failuresInRow = failed ? state.failuresInRow + 1 : 0
  const { total, marked } = CallWindow.sum(calls, settings.window, now)
  const tripped =
    failuresInRow >= settings.consecutiveFailures ||
    (total >= settings.minimumCalls && marked >= total * settings.failureRatio)
  return tripped ? open(state, now, settings.cooldownMillis) : { ...state, calls, failuresInRow }
}

/** Gives a permit back with what became of the call. */
export const settle = (before: State, permit: Permit, verdict: Verdict, now: number, settings: Settings): State => {
  const state = at(before, now, settings)
  if (permit.epoch !== state.epoch) return state
  switch (state._tag) {
    case "closed":
      return verdict === "abandoned" ? state : settleClosed(state, verdict === "failure", now, settings)
    case "open":
      return state
    case "half_open":
      if (verdict === "success") return close(state)
      return verdict === "failure"
        ? openLonger(state, now, settings)
        : { ...state, epoch: state.epoch + 1, probeDeadline: undefined }
  }
}

/**
 * Gives the permit of a call aside back.
 *
 * It counts like any other, but never against a probe that is under way, whose verdict is awaited: then a success alone
 * counts, whichever call it is of.
 */
export const settleAside = (
  before: State,
  permit: Permit,
  verdict: Verdict,
  now: number,
  settings: Settings
): State => {
  const state = at(before, now, settings)
  const isHarmless = state._tag !== "half_open" || verdict === "success" || state.probeDeadline === undefined
  return isHarmless && verdict !== "abandoned" ? settle(state, permit, verdict, now, settings) : state
}
