/**
 * How many retries an upstream is spared: a share of the recent calls and a small allowance, so that retries cannot
 * multiply the load of a service that is already failing (the retry budget of Finagle and Envoy).
 */
import { Effect } from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as CallWindow from "./CallWindow.ts"

/** How much may be retried. */
export interface Settings {
  /** Retries for each call in the window. */
  readonly ratio: number
  /** Retries a second that are allowed whatever the calls. */
  readonly perSecond: number
  readonly window: CallWindow.WindowSettings
}

/** The allowance may be used up at once: within a window of 10 seconds it comes to 30. */
export const defaults: Settings = { ratio: 0.2, perSecond: 3, window: { slotMillis: 1000, slots: 10 } }

/** Calls, and retries as the marked among them, within the window. */
export type Budget = CallWindow.CallWindow

/** Nothing called yet. */
export const initial: Budget = CallWindow.empty

/** Notes a call (not a retry), which earns a share of a retry. */
export const deposit = (budget: Budget, now: number, settings: Settings): Budget =>
  CallWindow.add(budget, settings.window, now, { total: 1, marked: 0 })

/** Takes one retry, if there is one left. */
export const withdraw = (budget: Budget, now: number, settings: Settings): readonly [boolean, Budget] => {
  const { total, marked } = CallWindow.sum(budget, settings.window, now)
  const allowance = (settings.perSecond * settings.window.slots * settings.window.slotMillis) / 1000
  return marked + 1 <= total * settings.ratio + allowance
    ? [true, CallWindow.add(budget, settings.window, now, { total: 0, marked: 1 })]
    : [false, budget]
}

/** A budget at work, shared by all calls to an upstream. */
export interface RetryBudget {
  /** Notes a call. */
  readonly deposit: Effect.Effect<void>
  /** Whether there was a retry left to take. */
  readonly withdraw: Effect.Effect<boolean>
}

/** A budget on monotonic time. */
export const make = (settings: Settings = defaults): RetryBudget => {
  let budget = initial
  return {
    deposit: Effect.map(Monotonic.millis, now => {
      budget = deposit(budget, now, settings)
    }),
    withdraw: Effect.map(Monotonic.millis, now => {
      const [granted, after] = withdraw(budget, now, settings)
      budget = after
      return granted
    })
  }
}
