import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Metric, type MetricKey, MutableHashMap } from "effect"
import { afterAll } from "vitest"
import { WebSocket } from "ws"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import { keys } from "../../Harness.ts"
import { test } from "../../Tests.ts"
import { serve } from "./Fixture.ts"

interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number | { readonly count: number }
}

const samplesOf = (url: string) =>
  Effect.promise(async () => {
    const answer = (await (await fetch(`${url}/api/metrics`)).json()) as { readonly metrics: ReadonlyArray<Sample> }
    return answer.metrics
  })

/** The sum over the series of a metric that have these labels. */
const sum = (samples: ReadonlyArray<Sample>, name: string, labels: Readonly<Record<string, string>> = {}): number =>
  samples
    .filter(sample => sample.name === name)
    .filter(sample => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((total, { value }) => total + (typeof value === "number" ? value : value.count), 0)

const put = (url: string, key: string) =>
  Effect.promise(() =>
    fetch(`${url}/api/v1/kv/n/${key}`, {
      method: "PUT",
      headers: { authorization: `Bearer ${keys.write}`, "content-type": "application/json" },
      body: '{"value":1}'
    }).then(answer => answer.text())
  )

/** One request to the gateway. */
const ping = (url: string) =>
  Effect.async<void>(resume => {
    const socket = new WebSocket(`${url.replace("http", "ws")}/ws`)
    socket.on("open", () => socket.send('{"type":"ping","id":"1"}'))
    socket.on("message", () => socket.close())
    socket.on("close", () => resume(Effect.void))
  })

/** Other test files share the registry of this process, and count what they find there. */
afterAll(() => {
  const series = Reflect.get(Metric.globalMetricRegistry, "map") as MutableHashMap.MutableHashMap<
    MetricKey.MetricKey.Untyped,
    unknown
  >
  for (const [key] of [...series]) {
    if (key.tags.some(tag => tag.key === "test_store")) MutableHashMap.remove(series, key)
  }
  const left = Metric.unsafeSnapshot().filter(({ metricKey }) => metricKey.tags.some(tag => tag.key === "test_store"))
  expect(left).toEqual([])
})

describe("two instances in one process", () => {
  test.scopedLive("have figures of their own, and show none of the other's", function* () {
    const [one, other] = [
      yield* serve({ tags: { test_store: "one" } }),
      yield* serve({ tags: { test_store: "other" } })
    ]
    for (const key of ["a", "b", "c"]) yield* put(one, key)
    yield* put(other, "a")
    yield* ping(other)
    const [ofOne, ofOther] = [yield* samplesOf(one), yield* samplesOf(other)]
    const figures = (samples: ReadonlyArray<Sample>, store: string) => ({
      puts: sum(samples, "http_requests_total", { test_store: store, method: "PUT" }),
      times: sum(samples, "http_request_duration_ms", { test_store: store, method: "PUT" }),
      commits: sum(samples, "store_commits_total", { test_store: store }),
      pings: sum(samples, "ws_messages_received_total", { test_store: store, type: "ping" })
    })
    expect(figures(ofOne, "one")).toEqual({ puts: 3, times: 3, commits: 3, pings: 0 })
    expect(figures(ofOther, "other")).toEqual({ puts: 1, times: 1, commits: 1, pings: 1 })
    expect(new Set(ofOne.map(({ labels }) => labels.test_store))).toEqual(new Set(["one", undefined]))
    expect(new Set(ofOther.map(({ labels }) => labels.test_store))).toEqual(new Set(["other", undefined]))
    const ofProcess = ofOne.filter(({ name }) => /^(process|event_loop|log_lines)_/.test(name))
    expect(ofProcess.map(({ labels }) => labels)).toEqual(Array.from({ length: 6 }, () => ({})))
  })

  test.scopedLive("have the labels and the values that an instance without tags has", function* () {
    const one = yield* serve({ tags: { test_store: "alone" } })
    // Other test files leave series of their own in the registry.
    const own = (yield* samplesOf(one)).filter(({ labels }) => labels.test_store === "alone")
    expect(own.length).toBeGreaterThan(0)
    const labels = new Set(own.flatMap(sample => Object.keys(sample.labels)))
    labels.delete("test_store")
    expect([...labels].filter(label => !MetricTags.reserved.has(label))).toEqual([])
  })
})

describe("an instance", () => {
  test.scoped("is built once where it is provided twice, and shares no part with another", function* () {
    let built = 0
    class Part extends Context.Tag("test/Part")<Part, number>() {}
    const part = Layer.sync(Part, () => ++built)
    const make = (name: string) => MetricTags.tagged({ store: name })(part)
    const one = make("one")
    const twice = Layer.provideMerge(Layer.effectDiscard(Part), one)
    expect(Context.get(yield* Layer.build(twice), Part)).toBe(1)
    const both = Layer.merge(Layer.provide(Layer.effectDiscard(Part), make("other")), one)
    yield* Layer.build(both)
    expect(built).toBe(3)
  })
})

describe("a tag", () => {
  it.effect.each([
    ["", "is no label"],
    ["9lives", "is no label"],
    ["__name__", "is no label"],
    ["a-b", "is no label"],
    ["route", "have already"]
  ])("%j is refused", ([name, reason]) =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(Layer.launch(MetricTags.tagged({ [name!]: "x" })(Layer.empty)))
      expect(Exit.isFailure(exit) && String(exit.cause)).toContain(reason)
    })
  )
})
