/**
 * A retry budget, as in Finagle and Envoy: retries are limited to a share of the recent calls and a small allowance, so
 * that they cannot multiply the load of a failing service.
 */
import { Effect } from "effect"
import * as Monotonic from "../../Monotonic.ts"
import * as CallWindow from "./CallWindow.ts"

export interface Settings {
  /** Retries for each call in the window. */
  readonly ratio: number
  /** Retries per second that are allowed in any case. */
  readonly perSecond: number
  readonly window: CallWindow.WindowSettings
}

/** The allowance may be used at once: 30 in a window of 10 seconds. */
export const defaults: Settings = { ratio: 0.2, perSecond: 3, window: { slotMillis: 1000, slots: 10 } }

/** The calls in the window. Retries are the marked ones. */
export type Budget = CallWindow.CallWindow

export const initial: Budget = CallWindow.empty

/** Counts a call that is not a retry. */
export const deposit = (budget: Budget, now: number, settings: Settings): Budget =>
  CallWindow.add(budget, settings.window, now, { total: 1, marked: 0 })

/** Takes one retry, if one is left. */
export const withdraw = (budget: Budget, now: number, settings: Settings): readonly [boolean, Budget] => {
  const { total, marked } = CallWindow.sum(budget, settings.window, now)
  const allowance = (settings.perSecond * settings.window.slots * settings.window.slotMillis) / 1000
  return marked + 1 <= total * settings.ratio + allowance
    ? [true, CallWindow.add(budget, settings.window, now, { total: 0, marked: 1 })]
    : [false, budget]
}

/** A budget with state, shared by all calls to an upstream. */
export interface RetryBudget {
  readonly deposit: Effect.Effect<void>
  /** Takes a retry; `false` if none is left. */
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
