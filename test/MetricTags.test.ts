import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { WebSocket } from "ws"
import * as MetricTags from "../src/MetricTags.ts"
import { keys } from "./Harness.ts"
import { serve } from "./Observability/Fixture.ts"

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

describe("two instances in one process", () => {
  it.scopedLive("have figures of their own, and show none of the other's", () =>
    Effect.gen(function* () {
      const [one, other] = [yield* serve({ tags: { store: "one" } }), yield* serve({ tags: { store: "other" } })]
      for (const key of ["a", "b", "c"]) yield* put(one, key)
      yield* put(other, "a")
      yield* ping(other)
      const [ofOne, ofOther] = [yield* samplesOf(one), yield* samplesOf(other)]
      const figures = (samples: ReadonlyArray<Sample>) => ({
        puts: sum(samples, "http_requests_total", { method: "PUT" }),
        times: sum(samples, "http_request_duration_ms", { method: "PUT" }),
        commits: sum(samples, "store_commits_total"),
        pings: sum(samples, "ws_messages_received_total", { type: "ping" })
      })
      expect(figures(ofOne)).toEqual({ puts: 3, times: 3, commits: 3, pings: 0 })
      expect(figures(ofOther)).toEqual({ puts: 1, times: 1, commits: 1, pings: 1 })
      for (const [samples, store] of [
        [ofOne, "one"],
        [ofOther, "other"]
      ] as const) {
        const tags = new Set(samples.map(({ labels }) => labels.store))
        expect(tags).toEqual(new Set([store, undefined]))
        const untagged = samples.filter(({ labels }) => labels.store === undefined).map(({ name }) => name)
        expect(untagged.filter(name => !/^(process_|event_loop_|log_lines_)/.test(name))).toEqual([])
      }
    })
  )

  it.scopedLive("have the labels and the values that an instance without tags has", () =>
    Effect.gen(function* () {
      const one = yield* serve({ tags: { store: "alone" } })
      const labels = new Set((yield* samplesOf(one)).flatMap(sample => Object.keys(sample.labels)))
      labels.delete("store")
      expect([...labels].filter(label => !MetricTags.reserved.has(label))).toEqual([])
    })
  )
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
