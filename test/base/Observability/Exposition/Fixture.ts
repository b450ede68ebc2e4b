/** The metrics of a service that has worked, and the pages that use them. */
import { readFileSync } from "node:fs"
import { assert } from "@effect/vitest"
import { Effect, Option, Schema } from "effect"
import { AgentPlatform } from "../../../../src/Upstream/AgentPlatform.ts"
import { keys } from "../../../Harness.ts"
import * as Fixture from "../Fixture.ts"

/** The text of a file for operators. */
export const page = (name: string): string =>
  readFileSync(new URL(`../../../../docs/operate/${name}`, import.meta.url), "utf8")

/** Calls an agent platform that is not there until the breaker rejects: there are retries, and transitions. */
const writeRefused = Effect.gen(function* () {
  const platform = yield* AgentPlatform
  const call = Effect.flip(platform.listFiles("i-1"))
  yield* call
  yield* call
  assert.strictEqual((yield* call)._tag, "AgentPlatformConnectionError")
}).pipe(Effect.provide(Fixture.upstreams(Option.some("http://127.0.0.1:1"))), Effect.provide(Fixture.quiet))

/** The metrics of a service that has had something to do, as Prometheus reads them. */
export const exposition = Effect.scoped(
  Effect.gen(function* () {
    const url = yield* Fixture.serve({ platform: "http://127.0.0.1:1" })
    const send = (path: string, init: RequestInit = {}) =>
      Effect.promise(async () => {
        const response = await fetch(url + path, {
          ...init,
          headers: { authorization: `Bearer ${keys.write}`, "content-type": "application/json" }
        })
        return { status: response.status, headers: response.headers, text: await response.text() }
      })
    assert.strictEqual((yield* send("/api/v1/kv/n/k", { method: "PUT", body: '{"value":1}' })).status, 200)
    assert.strictEqual((yield* send("/health")).status, 503)
    yield* writeRefused
    const { headers, text } = yield* send("/metrics")
    assert.strictEqual(headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8")
    // Other test files may have metrics of their own in this process.
    return text.replaceAll(/^(?:# \w+ )?test_.*\n/gm, "")
  })
)

const Dashboard = Schema.parseJson(
  Schema.Struct({
    panels: Schema.Array(
      Schema.Struct({
        id: Schema.Int,
        title: Schema.NonEmptyString,
        targets: Schema.optionalWith(Schema.Array(Schema.Struct({ expr: Schema.String })), { default: () => [] })
      })
    )
  })
)

/** The dashboard of the documentation. */
export const dashboard = Effect.map(Schema.decode(Dashboard)(page("grafana-dashboard.json")), ({ panels }) => ({
  panels,
  expressions: panels.flatMap(({ targets }) => targets.map(({ expr }) => expr))
}))
