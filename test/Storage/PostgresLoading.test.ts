/** The client of PostgreSQL is loaded only where it is configured. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { launch, runToEnd } from "../ServerProcess.ts"

/** Makes a process fail when it imports `pg`. */
const withoutPg = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from "node:module"
  registerHooks({
    resolve: (specifier, context, next) => {
      if (specifier === "pg") throw new Error("pg was imported")
      return next(specifier, context)
    }
  })
`)}`

const env = { KV_API_KEY: "key", NODE_OPTIONS: `--import=${withoutPg}` }

describe("the service", () => {
  it.scopedLive("starts without the client of PostgreSQL where STORE_URL names none", () =>
    Effect.gen(function* () {
      const service = yield* launch(env)
      yield* service.shows(/"message":"Listening"/)
      const { stderr } = yield* runToEnd({ ...env, STORE_URL: "postgres://127.0.0.1:1/none" })
      assert.include(stderr, "pg was imported")
    })
  )
})
