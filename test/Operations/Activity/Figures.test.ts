/** The figures between two readings of the metrics, and the ring that keeps them. */
import { assert, describe, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { Api } from "../../../src/app/Api.ts"
import type { Sample } from "../../../src/base/Observability/Samples.ts"
import { GatewayGroup } from "../../../src/Gateway/Api.ts"
import { kindsOf } from "../../../src/Http/Router.ts"
import {
  currentOf,
  between as figuresBetween,
  type Reading,
  readingOf
} from "../../../src/Operations/Activity/Figures.ts"
import { byFigure, type Figures, maxSamples } from "../../../src/Operations/Activity/Model.ts"
import { Ring } from "../../../src/Operations/Activity/Ring.ts"
import { ChatPageGroup, ConsoleGroup, IndexGroup, ReferenceGroup } from "../../../src/Operations/Pages/Api.ts"

const series = (name: string, value: number, labels: Record<string, string> = {}): Sample => ({
  ...{ name, description: "", labels, kind: "counter", value }
})

const kindOf = kindsOf(Api.add(GatewayGroup).add(ConsoleGroup).add(ReferenceGroup).add(ChatPageGroup).add(IndexGroup))

const between = (earlier: Reading, later: Reading) => figuresBetween(earlier, later, kindOf)

const requests = (route: string, value: number, at: number, labels: Record<string, string> = {}): Reading =>
  readingOf(at, [series("http_requests_total", value, { route, method: "GET", status: "200", ...labels })])

describe("the figures of a sample", () => {
  it.each([
    ["/api/v1/kv/{namespace}/{key}", 5],
    ["/api/v1/batch", 5],
    ["/api/v1/chat/{agentType}/{id}/messages", 5],
    ["/a-route-of-a-host", 5],
    ["/console", 0],
    ["/console/assets/{file}", 0],
    ["/docs/", 0],
    ["/chat/", 0],
    ["/", 0],
    ["/health", 0],
    ["/api/v1/ready", 0],
    ["/api/v1/activity", 0],
    ["/api/metrics", 0]
  ])("have the requests to %s: %d per second", (route, rate) => {
    assert.strictEqual(between(requests(route, 0, 0), requests(route, 10, 2000)).succeeded, rate)
  })

  it.each([
    ["/api/v1/kv/{namespace}/{key}", "GET", 5],
    ["/api/v1/kv/{namespace}", "GET", 5],
    ["/api/v1/kv/read", "POST", 5],
    ["/api/v1/kv/{namespace}/{key}", "PUT", 0],
    ["/api/v1/sessions", "GET", 0]
  ])("count %s %s as reads: %d per second", (route, method, rate) => {
    assert.strictEqual(between(requests(route, 0, 0, { method }), requests(route, 10, 2000, { method })).reads, rate)
  })

  const durations = (at: number, counts: ReadonlyArray<number>, labels: Record<string, string>): Reading =>
    readingOf(at, [
      {
        ...{ name: "http_request_duration_ms", description: "", labels },
        kind: "histogram",
        value: {
          ...{ count: counts.at(-1)!, sum: 0 },
          buckets: counts.map((count, index) => ({ le: [10, 20, Number.POSITIVE_INFINITY][index]!, count }))
        }
      }
    ])

  it.each([
    ["POST", "/api/v1/sessions/{id}/messages", true],
    ["GET", "/api/v1/chat/{agentType}/{id}/messages", true],
    ["DELETE", "/api/v1/chat/{agentType}/{id}/stream", true],
    ["POST", "/api/v1/ag-ui/{agentType}", false],
    ["POST", "/api/v1/chat/{agentType}", false],
    ["GET", "/api/v1/chat/{agentType}/{id}/stream", false],
    ["GET", "/api/v1/chat/{agentType}/ws", false],
    ["GET", "/api/v1/sessions/{id}/events", false],
    ["HEAD", "/api/v1/sessions/{id}/events", false],
    ["GET", "/api/v1/changes", false],
    ["GET", "/api/v1/changes/stream", false],
    ["GET", "/api/v1/changes/ws", false],
    ["GET", "/ws", false],
    ["GET", "/health", false]
  ])("have the duration of %s %s: %s", (method, route, isTimed) => {
    const { p50 } = between(durations(0, [0, 0, 0], { method, route }), durations(1000, [9, 9, 9], { method, route }))
    assert.strictEqual(Number.isFinite(p50), isTimed)
  })

  it("have quantiles of the requests in between, and none without requests", () => {
    const reading = (at: number, counts: ReadonlyArray<number>) =>
      durations(at, counts, { method: "POST", route: "/api/v1/batch" })
    const { p50, p99 } = between(reading(0, [100, 100, 100]), reading(1000, [100, 200, 200]))
    assert.deepStrictEqual([p50, p99], [15, 19.9])
    assert.isNaN(between(reading(0, [1, 1, 1]), reading(1000, [1, 1, 1])).p50)
  })

  it("have the sizes of files or of tables, and no size that is not measured", () => {
    const files = currentOf(readingOf(0, [series("database_file_bytes", 2), series("database_file_bytes", 3)]))
    assert.deepStrictEqual([files.databaseBytes, files.diskFreeBytes], [5, null])
    const tables = currentOf(readingOf(0, [series("postgres_table_bytes", 7), series("disk_free_bytes", 1)]))
    assert.deepStrictEqual([tables.databaseBytes, tables.diskFreeBytes], [7, 1])
  })
})

const figures = (value: number): Figures => byFigure(() => value)

describe("the ring of samples", () => {
  it("keeps the last hour in a tenth of a MiB, and thins out what is too much", () => {
    const ring = new Ring()
    for (let at = 1; at <= 2000; at++) ring.add(at, figures(at))
    assert.isBelow(ring.bytes, 128 * 1024)
    const { at, lag } = ring.after(0, 720)
    assert.deepStrictEqual([at.length, at[0], at.at(-1), lag[0]], [720, 1281, 2000, 1281])
    const thin = ring.after(1990, 4)
    assert.deepStrictEqual(thin.at, [1993, 1996, 1999, 2000])
    assert.deepStrictEqual(thin.lag, [1992, 1995, 1998, 2000])
    assert.deepStrictEqual(ring.after(2000, 10).at, [])
  })

  it("starts again if the clock was set back", () => {
    const ring = new Ring()
    for (const at of [100, 200, 50, 60]) ring.add(at, figures(at))
    assert.deepStrictEqual(ring.after(0, 10).at, [50, 60])
  })

  it("has the latest samples in order, whatever was added", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 8 }),
        fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 40 }),
        fc.integer({ min: 0, max: 100 }),
        (capacity, steps, after) => {
          const ring = new Ring(capacity)
          const added: Array<number> = []
          for (const step of steps) {
            added.push((added.at(-1) ?? 0) + step)
            ring.add(added.at(-1)!, figures(1))
          }
          assert.deepStrictEqual(
            ring.after(after, 100).at,
            added.slice(-capacity).filter(at => at > after)
          )
        }
      ),
      { seed: 1 }
    )
  })

  it("takes less than 1 MiB in an answer, with the longest numbers", () => {
    const ring = new Ring(maxSamples)
    for (let at = 0; at < maxSamples; at++) ring.add(1_767_225_600_000 + at, figures(0.000123456789 * (at + 1)))
    assert.isBelow(JSON.stringify(ring.after(0, maxSamples)).length, 1024 * 1024)
    const odd = new Ring(1)
    odd.add(1, { ...figures(1), p50: Number.NaN })
    assert.strictEqual(odd.after(0, 1).p50[0], null)
  })
})
