import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Logger, LogLevel } from "effect"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as SessionCommit from "../../../src/Storage/Commit/SessionCommit.ts"

describe("a defect of a commit of session histories", () => {
  it.scoped("fails its writes as an unavailable store does, and is logged as one error with its cause", () =>
    Effect.gen(function* () {
      const causes: Array<Cause.Cause<unknown>> = []
      const recorder = Logger.make(({ cause, logLevel }) => {
        if (LogLevel.greaterThanEqual(logLevel, LogLevel.Error)) causes.push(cause)
      })
      yield* Effect.gen(function* () {
        const { submit } = yield* SessionCommit.make({ commit: () => Effect.die(new Error("a row has no state")) })
        const refused = yield* Effect.flip(submit({ op: "remove", session: "s1" }))
        assert.deepStrictEqual(refused, new StoreUnavailable({ reason: "Error: a row has no state" }))
      }).pipe(Effect.scoped, Effect.provide(Logger.replace(Logger.defaultLogger, recorder)))
      assert.deepStrictEqual(
        causes.map(cause => String(Cause.squash(cause))),
        ["Error: a row has no state"]
      )
    })
  )
})
