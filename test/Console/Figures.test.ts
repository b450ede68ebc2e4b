/** The plotted figures of the console. */
import { assert, describe, it } from "vitest"
import { between } from "../../src/Console/Overview/Figures.ts"
import type { Snapshot } from "../../src/Console/Overview/Samples.ts"

const requestsOf = (route: string, value: number, at: number): Snapshot => ({
  at,
  values: new Map([["http_requests_total", [{ labels: { route, status: "200" }, value }]]]),
  distributions: new Map()
})

describe("the rate of requests", () => {
  it.each([
    ["/api/v1/kv/{namespace}/{key}", 5],
    ["/api/v1/batch", 5],
    ["/console", 0],
    ["/console/", 0],
    ["/console/assets/{file}", 0],
    ["/docs", 0],
    ["/docs/", 0],
    ["/docs/assets/{file}", 0],
    ["/health", 0],
    ["/api/v1/ready", 0],
    ["/api/metrics", 0]
  ])("counts requests to %s: %d per second", (route, rate) => {
    assert.strictEqual(between(requestsOf(route, 0, 0), requestsOf(route, 10, 2000)).succeeded, rate)
  })
})
