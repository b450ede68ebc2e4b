/**
 * The state machine of a circuit breaker, as pure transitions. Times are monotonic milliseconds, given by the caller.
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
  /** How long it stays open; doubled, up to the longest, each time that a probe fails. */
  readonly cooldownMillis: number
  readonly longestCooldownMillis: number
  /**
   * After this time without an answer to a probe, another call is admitted too. A probe itself ends by the limit of its
   * call, since a service that answers slowly may work.
   */
  readonly probeMillis: number
  /** The `Retry-After` of calls that are rejected during a probe; most probes end soon. */
  readonly askAgainMillis: number
}

/** The defaults: 5 consecutive failures, or half of at least 20 calls within 30 s; a cooldown of 10 s to 60 s. */
export const defaults: Settings = {
  consecutiveFailures: 5,
  minimumCalls: 20,
  failureRatio: 0.5,
  window: { slotMillis: 1000, slots: 30 },
  cooldownMillis: 10_000,
  longestCooldownMillis: 60_000,
  probeMillis: 10_000,
  askAgainMillis: 1000
}

/**
 * Admits a call, and is returned with its verdict.
 *
 * The epoch changes with every transition. A verdict with an earlier epoch is ignored.
 */
export interface Permit {
  readonly epoch: number
  readonly isBackground: boolean
}

/** Calls are admitted and counted. */
export interface Closed {
  readonly _tag: "closed"
  readonly epoch: number
  readonly failuresInRow: number
  readonly calls: CallWindow.CallWindow
}

/** Calls are rejected until the cooldown has ended. */
export interface Open {
  readonly _tag: "open"
  readonly epoch: number
  readonly until: number
  readonly cooldownMillis: number
}

/** Single calls are admitted, as probes. */
export interface HalfOpen {
  readonly _tag: "half_open"
  readonly epoch: number
  /** The cooldown before. */
  readonly cooldownMillis: number
  /** When the next probe is admitted, while the last one is in progress; `undefined` if none is. */
  readonly nextProbe: number | undefined
}

/** The state of a breaker. */
export type State = Closed | Open | HalfOpen

/** How a call ended; `abandoned` says nothing about the upstream, such as an interruption by the caller. */
export type Verdict = "success" | "failure" | "abandoned"

/** The state of a new breaker: closed, without calls. */
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

/** The state at a time, after the transition that is due by then. */
export const at = (state: State, now: number): State =>
  state._tag === "open" && now >= state.until
    ? { _tag: "half_open", epoch: state.epoch + 1, cooldownMillis: state.cooldownMillis, nextProbe: undefined }
    : state

/** Whether a call is admitted. A rejected one may be repeated after `retryAfterMillis`. */
export type Admission =
  | { readonly _tag: "admitted"; readonly permit: Permit }
  | { readonly _tag: "rejected"; readonly retryAfterMillis: number }

const rejected = (until: number, now: number): Admission => ({
  _tag: "rejected",
  retryAfterMillis: Math.max(0, until - now)
})

/** When the next transition is due by time; `undefined` if none is. */
export const nextChange = (state: State): number | undefined => (state._tag === "open" ? state.until : undefined)

/** Admits or rejects a call. A background call is never the probe of a half-open breaker. */
export const admit = (
  before: State,
  now: number,
  settings: Settings,
  isBackground = false
): readonly [Admission, State] => {
  const admitted = (state: State): readonly [Admission, State] => [
    { _tag: "admitted", permit: { epoch: state.epoch, isBackground } },
    state
  ]
  const state = at(before, now)
  if (state._tag === "open") return [rejected(state.until, now), state]
  if (state._tag === "closed" || isBackground) return admitted(state)
  if (state.nextProbe !== undefined && now < state.nextProbe) {
    return [rejected(Math.min(state.nextProbe, now + settings.askAgainMillis), now), state]
  }
  return admitted({ ...state, nextProbe: now + settings.probeMillis })
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

/** The upstream has answered a call that continues, such as a stream. This ends an outage; else the end of the call counts. */
export const answered = (before: State, permit: Permit, now: number): State => {
  const state = at(before, now)
  return state._tag === "half_open" && permit.epoch === state.epoch ? close(state) : state
}

/** Returns a permit with the verdict on its call. During a probe, only a success of a background call counts. */
export const settle = (before: State, permit: Permit, verdict: Verdict, now: number, settings: Settings): State => {
  const state = at(before, now)
  if (permit.epoch !== state.epoch || state._tag === "open") return state
  if (state._tag === "closed") {
    return verdict === "abandoned" ? state : settleClosed(state, verdict === "failure", now, settings)
  }
  if (verdict === "success") return close(state)
  if (permit.isBackground && (verdict === "abandoned" || state.nextProbe !== undefined)) return state
  return verdict === "failure" ? openLonger(state, now, settings) : { ...state, nextProbe: undefined }
}
