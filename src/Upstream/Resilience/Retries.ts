/**
 * Retries: of which failures, after what delay, and how many. As in Finagle and Envoy, a budget limits retries to a share
 * of the recent calls and a small allowance, so that they cannot multiply the load of a failing service.
 */
import { Duration, Effect, Schedule } from "effect"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import * as CallWindow from "./CallWindow.ts"
import type { UpstreamFailure } from "./UpstreamFailure.ts"

/** Maximum tries of one call, including the first. */
const tries = 3

const firstDelay = Duration.millis(200)

/** Maximum delay, computed or from `Retry-After`. */
const longestDelay = Duration.seconds(10)

/** Statuses that a retry may not get again. */
export const transientStatuses: ReadonlySet<number> = new Set([408, 429, 502, 503, 504])

/** Whether a retry may succeed: a failed connection, a timeout, or one of {@link transientStatuses}. */
export const isTransient = ({ reason, statusCode }: UpstreamFailure): boolean =>
  reason === "connection" ||
  reason === "timeout" ||
  (reason === "status" && statusCode !== undefined && transientStatuses.has(statusCode))

/** Exponential delays from 200 ms to 10 s, with full jitter from Effect's Random. */
export const backoff: Schedule.Schedule<Duration.Duration> = Schedule.exponential(firstDelay, 2).pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, longestDelay)),
  Schedule.jitteredWith({ min: 0, max: 1 })
)

/** Whether the upstream asks for a longer delay than ours. */
const isRetryAfterTooLong = ({ retryAfterMillis }: UpstreamFailure): boolean =>
  retryAfterMillis !== undefined && retryAfterMillis > Duration.toMillis(longestDelay)

/**
 * The retries of one call.
 *
 * A delay from `Retry-After` is added to the jittered one, so that callers do not all return at the same time. A
 * `Retry-After` of more than 10 s ends the call. `mayRetry` is the last condition, and is run once for each retry.
 */
export const schedule = (
  mayRetry: (failure: UpstreamFailure, delayMillis: number) => Effect.Effect<boolean>
): Schedule.Schedule<unknown, UpstreamFailure> =>
  backoff.pipe(
    Schedule.intersect(Schedule.identity<UpstreamFailure>()),
    Schedule.addDelay(([, failure]) => Duration.millis(failure.retryAfterMillis ?? 0)),
    Schedule.delays,
    Schedule.intersect(Schedule.recurs(tries - 1)),
    Schedule.checkEffect((failure, [delay]) =>
      isTransient(failure) && !isRetryAfterTooLong(failure)
        ? mayRetry(failure, Duration.toMillis(delay))
        : Effect.succeed(false)
    )
  )

/** The number of retries in a window, relative to the number of calls. */
export interface BudgetSettings {
  /** Retries for each call in the window. */
  readonly ratio: number
  /** Retries per second that are allowed in any case. */
  readonly perSecond: number
  readonly window: CallWindow.WindowSettings
}

/** The allowance may be used at once: 30 retries in a window of 10 seconds. */
export const budgetDefaults: BudgetSettings = { ratio: 0.2, perSecond: 3, window: { slotMillis: 1000, slots: 10 } }

/** The calls in the window. Retries are the marked ones. */
export type BudgetState = CallWindow.CallWindow

/** Counts a call that is not a retry. */
export const deposit = (budget: BudgetState, now: number, settings: BudgetSettings): BudgetState =>
  CallWindow.add(budget, settings.window, now, { total: 1, marked: 0 })

/** Takes one retry, if one is left. */
export const withdraw = (
  budget: BudgetState,
  now: number,
  settings: BudgetSettings
): readonly [boolean, BudgetState] => {
  const { total, marked } = CallWindow.sum(budget, settings.window, now)
  const allowance = (settings.perSecond * settings.window.slots * settings.window.slotMillis) / 1000
  return marked + 1 <= total * settings.ratio + allowance
    ? [true, CallWindow.add(budget, settings.window, now, { total: 0, marked: 1 })]
    : [false, budget]
}

/** A budget that all calls to an upstream share. */
export interface Budget {
  /** Counts a call that is not a retry. */
  readonly deposit: Effect.Effect<void>
  /** Takes a retry; `false` if none is left. */
  readonly withdraw: Effect.Effect<boolean>
}

/** A full budget. */
export const makeBudget = (settings: BudgetSettings = budgetDefaults): Budget => {
  let budget: BudgetState = CallWindow.empty
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
