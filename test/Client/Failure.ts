/** Failures of calls. */
import { expect } from "vitest"

/** The error of a call that must fail. */
export const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    value => expect.fail(`succeeded with ${JSON.stringify(value)}`),
    error => error
  )

/** Begins a call whose failure is looked at later. */
export const failing = (promise: Promise<unknown>): Promise<unknown> => promise.catch(error => error)
