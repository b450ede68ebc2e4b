/** Modules that a service may do without are loaded only where they are used, as they take memory. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { launch, runToEnd } from "./service/Command.ts"
import * as Compiled from "./service/Compiled.ts"

/** Makes a process fail when it imports one of these. */
const without = (...specifiers: ReadonlyArray<string>) => {
  const code = `
    import { registerHooks } from "node:module"
    const unwanted = ${JSON.stringify(specifiers)}
    registerHooks({
      resolve: (specifier, context, next) => {
        if (unwanted.includes(specifier)) throw new Error(specifier + " was imported")
        return next(specifier, context)
      }
    })`
  return { KV_API_KEY: "key", NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` }
}

describe("the service", () => {
  it.scopedLive("starts without the client of PostgreSQL where STORE_URL names none", () =>
    Effect.gen(function* () {
      const env = without("pg")
      const service = yield* launch(env, [], Compiled.main())
      yield* service.shows(/"message":"Listening"/)
      const { stderr } = yield* runToEnd({ ...env, STORE_URL: "postgres://127.0.0.1:1/none" }, [], Compiled.main())
      assert.include(stderr, "pg was imported")
    })
  )

  it.scopedLive("starts without the library of the commands", () =>
    Effect.gen(function* () {
      const env = without("@effect/cli/Command", "string-width")
      const service = yield* launch(env, ["serve"], Compiled.main())
      yield* service.shows(/"message":"Listening"/)
      const { stderr } = yield* runToEnd(env, ["kv", "--help"], Compiled.main())
      assert.include(stderr, "@effect/cli/Command was imported")
    })
  )

  it.scopedLive("starts without the platform's server and client", () =>
    Effect.gen(function* () {
      const service = yield* launch(
        without("@effect/platform/HttpApiBuilder", "@effect/platform-node/NodeHttpServer", "undici"),
        [],
        Compiled.main()
      )
      yield* service.shows(/"message":"Listening"/)
    })
  )
})

describe("the store in PostgreSQL", () => {
  it.scopedLive("is loaded without SQLite", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* runToEnd(without("better-sqlite3"), [], Compiled.module("exports/postgres"))
      assert.deepStrictEqual([code, stderr], [0, ""])
    })
  )
})
