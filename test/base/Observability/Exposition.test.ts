/** The metrics of a service: those that are documented, and those that the dashboard and the alerts use. */
import { readdirSync, readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { requestTypes } from "../../../src/Gateway/Protocol/Request.ts"
import * as Environment from "../../service/Environment.ts"
import * as Service from "../../service/Service.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { dashboard, exposition, page } from "./Exposition/Fixture.ts"

/** The metrics of a process that has just started. */
const expositionAtStart = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const env = {
    AGENT_PLATFORM_URL: "http://127.0.0.1:1",
    METRICS_PROMETHEUS: "true",
    METRICS_TOKEN: "token-of-metrics"
  }
  const { url } = yield* Service.start({ directory, env })
  const headers = { authorization: `Bearer ${env.METRICS_TOKEN}` }
  return yield* Effect.promise(async () => (await fetch(`${url}/metrics`, { headers })).text())
})

/** Name and kind of each metric in the text. */
const kindsIn = (text: string): ReadonlyMap<string, string> =>
  new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, kind]) => [name!, kind!]))

/** The names of a metric that a query can use. */
const seriesOf = (name: string, kind: string): ReadonlyArray<string> =>
  kind === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name]

/** The names that a query can use. */
const queryable = (text: string): ReadonlySet<string> =>
  new Set([...kindsIn(text)].flatMap(([name, kind]) => seriesOf(name, kind)))

const words = new Set(["by", "without", "and", "or", "unless", "on", "ignoring", "bool", "offset"])

/** The metrics that a PromQL expression speaks of. */
const metricsOf = (expression: string): ReadonlyArray<string> => {
  const bare = expression
    .replace(/\{[^}]*\}|\[[^\]]*\]|"[^"]*"/g, " ")
    .replace(/\b(?:by|without|on|ignoring)\s*\([^)]*\)/g, " ")
  return [...bare.matchAll(/\b[a-z_][a-z0-9_]*\b(?!\s*\()/g)]
    .map(([name]) => name)
    .filter(name => !words.has(name) && !/^e\d+$/.test(name))
}

/** The expressions of alerts: the text after `expr:`, on the same line or below it. */
const alertExpressions = [...page("alerts.yml").matchAll(/^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/gm)].map(
  ([, block, line]) => (block ?? line)!.trim()
)

const documented = [
  ...page("observability.md")
    .split("<!-- metrics -->")[1]!
    .split("<!-- /metrics -->")[0]!
    .matchAll(/^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|/gm)
].map(([, name, kind, labels]) => ({
  name: name!,
  kind: kind!,
  labels: labels!.split(",").flatMap(label => (label.trim() === "" ? [] : [label.trim()]))
}))

/** Whether a metric exists only where the store is in PostgreSQL; the test of such nodes shows that it does. */
const isOfNodes = (name: string): boolean => /^(?:postgres_|session_(?!database)|sessions_)/.test(name)

const source = (): string => {
  const directory = new URL("../../../src/", import.meta.url)
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter(name => name.endsWith(".ts"))
    .map(name => readFileSync(new URL(name, directory), "utf8"))
    .join("\n")
}

describe("the metrics of a service at work", () => {
  test.live("are those that the documentation lists, with their kinds and labels", function* () {
    // Other test files may have instances of their own in this process.
    const text = (yield* exposition).replaceAll(/^.*[{,]test_\w+=.*\n/gm, "")
    const table = new Map(documented.map(metric => [metric.name, metric]))
    for (const [name, kind] of kindsIn(text)) assert.strictEqual(table.get(name)?.kind, kind, name)
    const written = source()
    for (const { name } of documented) assert.include(written, `"${name}"`)
    for (const [, series, inner] of text.matchAll(/^([a-z_]+)\{(.*)\} \S+$/gm)) {
      const metric = table.get(series!) ?? table.get(series!.replace(/_(?:bucket|sum|count)$/, ""))
      const labels = [...inner!.matchAll(/(\w+)="/g)].flatMap(([, label]) => (label === "le" ? [] : [label!]))
      assert.sameMembers([...(metric?.labels ?? [])], labels, series)
    }
  })

  it.scopedLive("have those of the specification from the start, with 0", () =>
    Effect.gen(function* () {
      const text = yield* expositionAtStart
      for (const line of [
        'http_requests_total{method="PUT",route="/api/v1/kv/{namespace}/{key}",status="200"} 0',
        'http_requests_total{method="GET",route="/api/v1/changes",status="503"} 0',
        'http_request_duration_ms_count{method="POST",route="/api/v1/batch"} 0',
        "ws_connections_active 0",
        "turns_started_total 0",
        "turns_completed_total 0",
        "turns_errored_total 0",
        ...[...requestTypes, "invalid", "other"].map(type => `ws_messages_received_total{type="${type}"} 0`),
        ...[
          "pong",
          "error",
          "subscribed",
          "file_content",
          "text_delta",
          "turn_completed",
          "usage_context",
          "other"
        ].map(type => `ws_messages_sent_total{type="${type}"} 0`),
        'platform_events_dropped_total{type="other"} 0',
        "agent_platform_reconnects_total 0",
        "agent_platform_connections_cut_total 0",
        "agent_platform_events_too_large_total 0",
        "agent_platform_frames_rejected_total 0",
        ...["create", "connect", "stop", "list_files", "read_file", "file_history", "file_at_iteration"].flatMap(
          operation =>
            ["ok", "client_error", "server_error", "timeout", "interrupted"].map(
              outcome => `agent_platform_request_duration_ms_count{operation="${operation}",outcome="${outcome}"} 0`
            )
        ),
        'circuit_breaker_state{upstream="agent_platform_cleanup"} 0',
        'circuit_breaker_rejected_total{operation="read_file",upstream="agent_platform"} 0',
        'circuit_breaker_transitions_total{from="half_open",to="closed",upstream="agent_platform"} 0',
        'upstream_retries_total{operation="file_history",upstream="agent_platform"} 0',
        'inference_request_duration_ms_count{operation="generate_stream",outcome="ok"} 0'
      ]) {
        assert.include(text, `\n${line}\n`)
      }
    }).pipe(Effect.provide(Environment.layer))
  )

  test.live("count a write, and failed calls", function* () {
    const text = yield* exposition
    assert.match(text, /^store_commits_total\{outcome="ok"\} [1-9]/m)
    assert.match(text, /^store_commit_writes_sum [1-9]/m)
    assert.match(text, /^circuit_breaker_state\{upstream="agent_platform"\} 2$/m)
    assert.match(text, /^upstream_retries_total\{.*upstream="agent_platform"\} [1-9]/m)
  })

  test.live("include all that the dashboard and the alerts use", function* () {
    const ofNodes = documented.flatMap(({ kind, name }) => (isOfNodes(name) ? seriesOf(name, kind) : []))
    const names = new Set([...queryable(yield* exposition), ...ofNodes])
    const { expressions, panels } = yield* dashboard
    assert.strictEqual(new Set(panels.map(({ id }) => id)).size, panels.length)
    assert.isAbove(expressions.length, 25)
    assert.lengthOf(alertExpressions, [...page("alerts.yml").matchAll(/- alert:/g)].length)
    for (const expression of [...expressions, ...alertExpressions]) {
      const used = metricsOf(expression)
      assert.isNotEmpty(used, expression)
      for (const name of used) assert.isTrue(name === "up" || names.has(name), `${name} in ${expression}`)
    }
  })

  it("shows the metrics of an expression, and nothing else of it", () => {
    assert.deepStrictEqual(metricsOf('sum by (le, x) (rate(a_total{b="c_total", d=~"$e"}[5m])) / on(y) z > 1e9'), [
      "a_total",
      "z"
    ])
  })
})

const Families = Schema.Array(
  Schema.Struct({
    name: Schema.String,
    help: Schema.String,
    type: Schema.String,
    metrics: Schema.NonEmptyArray(Schema.Unknown)
  })
)

/** A parser by others, which has no types. */
const parserName: string = "parse-prometheus-text-format"
const { default: parse }: { readonly default: (text: string) => unknown } = await import(parserName)

describe("parse-prometheus-text-format", () => {
  test.live("reads every family with its help, kind and series", function* () {
    const text = yield* exposition
    const families = yield* Schema.decodeUnknown(Families)(parse(text))
    const read = new Map(families.map(({ name, type }) => [name, type.toLowerCase()]))
    assert.deepStrictEqual(Object.fromEntries(read), Object.fromEntries(kindsIn(text)))
    for (const { help, name } of families) assert.isNotEmpty(help, name)
    const heap = families.find(({ name }) => name === "process_heap_used_bytes")?.metrics[0]
    assert.match(JSON.stringify(heap), /^\{"value":"\d+"\}$/)
  })
})
