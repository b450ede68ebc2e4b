import { execFile, execFileSync } from "node:child_process"
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Schema } from "effect"
import { parse as parseYaml } from "yaml"
import { requestTypes } from "../../src/Gateway/Protocol/Request.ts"
import { AgentPlatform } from "../../src/Upstream/AgentPlatform.ts"
import { keys } from "../Harness.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import * as Fixture from "./Fixture.ts"

const page = (name: string): string => readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8")

/** Calls an agent platform that is not there until the breaker rejects: there are retries, and transitions. */
const writeRefused = Effect.gen(function* () {
  const platform = yield* AgentPlatform
  const call = Effect.flip(platform.listFiles("i-1"))
  yield* call
  yield* call
  assert.strictEqual((yield* call)._tag, "AgentPlatformConnectionError")
}).pipe(Effect.provide(Fixture.upstreams(Option.some("http://127.0.0.1:1"))), Effect.provide(Fixture.quiet))

/** The metrics of a service that has had something to do, as Prometheus reads them. */
const exposition = Effect.scoped(
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
    return text
  })
)

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

const dashboard = Effect.map(Schema.decode(Dashboard)(page("grafana-dashboard.json")), ({ panels }) => ({
  panels,
  expressions: panels.flatMap(({ targets }) => targets.map(({ expr }) => expr))
}))

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
  const directory = new URL("../../src/", import.meta.url)
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter(name => name.endsWith(".ts"))
    .map(name => readFileSync(new URL(name, directory), "utf8"))
    .join("\n")
}

describe("the metrics of a service at work", () => {
  it.live("are those that the documentation lists, with their kinds and labels", () =>
    Effect.gen(function* () {
      // Other test files may have metrics and instances of their own in this process.
      const text = (yield* exposition).replaceAll(/^(?:(?:# \w+ )?test_.*|.*[{,]test_\w+=.*)\n/gm, "")
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
  )

  it.scopedLive("have those of the specification from the start, with 0", () =>
    Effect.gen(function* () {
      const text = yield* expositionAtStart
      for (const line of [
        'http_requests_total{method="PUT",route="/api/v1/kv/{namespace}/{key}",status="200"} 0',
        'http_requests_total{method="GET",route="/api/v1/changes",status="503"} 0',
        'http_request_duration_ms_count{method="POST",route="/api/v1/batch"} 0',
        "ws_connections_active 0",
        'ws_messages_received_total{type="other"} 0',
        'ws_messages_sent_total{type="other"} 0',
        "turns_started_total 0",
        "turns_completed_total 0",
        "turns_errored_total 0",
        ...requestTypes.map(type => `ws_messages_received_total{type="${type}"} 0`),
        'ws_messages_received_total{type="invalid"} 0',
        ...["pong", "error", "subscribed", "file_content", "text_delta", "turn_completed", "usage_context"].map(
          type => `ws_messages_sent_total{type="${type}"} 0`
        ),
        'platform_events_dropped_total{type="other"} 0',
        "agent_platform_reconnects_total 0",
        "agent_platform_frames_rejected_total 0",
        'agent_platform_request_duration_ms_count{operation="create",outcome="ok"} 0',
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

  it.live("count a write, and failed calls", () =>
    Effect.gen(function* () {
      const text = yield* exposition
      assert.match(text, /^store_commits_total\{outcome="ok"\} [1-9]/m)
      assert.match(text, /^store_commit_writes_sum [1-9]/m)
      assert.match(text, /^circuit_breaker_state\{upstream="agent_platform"\} 2$/m)
      assert.match(text, /^upstream_retries_total\{.*upstream="agent_platform"\} [1-9]/m)
    })
  )

  it.live("include all that the dashboard and the alerts use", () =>
    Effect.gen(function* () {
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
  )

  it("shows the metrics of an expression, and nothing else of it", () => {
    assert.deepStrictEqual(metricsOf('sum by (le, x) (rate(a_total{b="c_total", d=~"$e"}[5m])) / on(y) z > 1e9'), [
      "a_total",
      "z"
    ])
  })
})

/** Runs promtool on its standard input. */
const promtool = (args: ReadonlyArray<string>, input: string) =>
  Effect.async<{ readonly code: number; readonly output: string }>(resume => {
    const child = execFile("promtool", args, (error, stdout, stderr) =>
      resume(Effect.succeed({ code: typeof error?.code === "number" ? error.code : 0, output: stdout + stderr }))
    )
    child.stdin?.end(input)
  })

const hasPromtool = ((): boolean => {
  try {
    execFileSync("promtool", ["--version"], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
})()

describe.skipIf(!hasPromtool)("promtool (skipped where it is not installed)", () => {
  it.live("reads the metrics, and warns about milliseconds only", () =>
    Effect.gen(function* () {
      const { code, output } = yield* promtool(["check", "metrics"], yield* exposition)
      // 3 says that there were remarks; what cannot be read is 1.
      assert.include([0, 3], code, output)
      const remarks = output.split("\n").filter(line => line !== "")
      for (const remark of remarks) assert.match(remark, /^\w+_ms metric names should not contain abbreviated units$/)
    })
  )

  it.scopedLive("accepts the alerts, and the dashboard's expressions", () =>
    Effect.gen(function* () {
      const alerts = new URL("../../docs/alerts.yml", import.meta.url).pathname
      const checked = yield* promtool(["check", "rules", alerts], "")
      assert.strictEqual(checked.code, 0, checked.output)
      const { expressions } = yield* dashboard
      // What is JSON is YAML too.
      const rules = JSON.stringify({
        groups: [
          {
            name: "dashboard",
            rules: expressions.map((expr, index) => ({
              record: `expression_${index}`,
              expr: expr.replaceAll("$__rate_interval", "5m")
            }))
          }
        ]
      })
      const file = join(yield* temporaryDirectory, "rules.yml")
      writeFileSync(file, rules)
      const read = yield* promtool(["check", "rules", file], "")
      assert.strictEqual(read.code, 0, read.output)
    })
  )
})

const Rules = Schema.Struct({
  groups: Schema.Array(
    Schema.Struct({
      rules: Schema.Array(
        Schema.Struct({
          alert: Schema.String,
          annotations: Schema.Record({ key: Schema.String, value: Schema.String })
        })
      )
    })
  )
})

describe.skipIf(!hasPromtool)(
  "alerts of the disk and of pruning, by promtool (skipped where it is not installed)",
  () => {
    it.scopedLive(
      "come a day before it is full, where the log grows without end or is not pruned, and not otherwise",
      () =>
        Effect.gen(function* () {
          const { groups } = yield* Schema.decodeUnknown(Rules)(parseYaml(page("alerts.yml")))
          const annotationsOf = (alert: string) =>
            groups.flatMap(({ rules }) => rules).find(rule => rule.alert === alert)?.annotations ?? assert.fail(alert)
          const series = (name: string, instance: string, values: string, labels = "") => ({
            series: `${name}{job="causeway", instance="${instance}"${labels}}`,
            values
          })
          const database = ', file="kv.db"'
          const fires = (alertname: string, hours: number, severity: string, labels: object, words: object) => ({
            alertname,
            eval_time: `${hours * 60}m`,
            exp_alerts: [
              {
                exp_labels: { severity, job: "causeway", ...labels },
                exp_annotations: Object.fromEntries(
                  Object.entries(annotationsOf(alertname)).map(([name, text]) => [
                    name,
                    Object.entries(words).reduce((text, [word, value]) => text.replace(`{{ ${word} }}`, value), text)
                  ])
                )
              }
            ]
          })
          const file = join(yield* temporaryDirectory, "disk.yml")
          const tests = [
            {
              interval: "2m",
              input_series: [
                // Of 200 GB 60 are free: on one machine they go in 20 hours, on another they stay.
                series("disk_free_bytes", "filling", "60000000000-100000000x500"),
                series("disk_size_bytes", "filling", "200000000000+0x1300"),
                series("disk_free_bytes", "calm", "60000000000+0x1300"),
                series("disk_size_bytes", "calm", "200000000000+0x1300"),
                series("disk_free_bytes", "small", "400000000+0x1300"),
                series("disk_size_bytes", "small", "2000000000+0x1300"),
                // 2 GB that grow by 144 MB a day, and by a tenth of it.
                series("database_file_bytes", "filling", "2000000000+200000x1300", database),
                series("database_file_bytes", "calm", "2000000000+20000x1300", database),
                // Two nodes see one unused slot, which one of them has seen for longer, and a dump of 20 minutes.
                series("postgres_vacuum_held_back_seconds", "one", "0+120x1300", ', holder="slot"'),
                series("postgres_vacuum_held_back_seconds", "other", "0x100 0+120x1200", ', holder="slot"'),
                series("postgres_vacuum_held_back_seconds", "one", "0+120x10 0x1290", ', holder="session"'),
                ...Object.entries({ changes: [300_000, 200_000], entries: [300_000, 400_000], nodes: [9, 2] }).flatMap(
                  ([table, [dead, live]]) => [
                    series("postgres_table_rows", "one", `${dead}x1300`, `, table="${table}", state="dead"`),
                    series("postgres_table_rows", "one", `${live}x1300`, `, table="${table}", state="live"`)
                  ]
                ),
                // Retention fails each minute; expiry has failed for a minute, when the database was restarted.
                series("store_housekeeping_failures_total", "one", "0+2x1300", ', task="retention"'),
                series("store_housekeeping_failures_total", "one", "0x100 60x1200", ', task="expiry"')
              ],
              alert_rule_test: [
                fires(
                  "CausewayDiskFillsSoon",
                  8,
                  "warning",
                  { instance: "filling" },
                  { "$labels.instance": "filling" }
                ),
                fires(
                  "CausewayDiskNearlyFull",
                  1,
                  "critical",
                  { instance: "small" },
                  { "$labels.instance": "small", "$value | humanize1024": "381.5Mi" }
                ),
                fires(
                  "CausewayStoreGrows",
                  40,
                  "info",
                  { instance: "filling", file: "kv.db" },
                  { "$labels.instance": "filling", "$labels.file": "kv.db" }
                ),
                fires(
                  "CausewayVacuumHeldBack",
                  4,
                  "warning",
                  { holder: "slot" },
                  { "$labels.holder": "slot", "$value | humanizeDuration": "4h 0m 0s" }
                ),
                fires("CausewayDeadRows", 2, "warning", { table: "changes" }, { "$labels.table": "changes" }),
                // Twelve minutes after expiry has failed.
                fires(
                  "CausewayHousekeepingFails",
                  3.6,
                  "warning",
                  { instance: "one", task: "retention" },
                  { "$labels.instance": "one", "$labels.task": "retention" }
                )
              ]
            }
          ]
          const rules = new URL("../../docs/alerts.yml", import.meta.url).pathname
          writeFileSync(file, JSON.stringify({ rule_files: [rules], evaluation_interval: "5m", tests }))
          const { code, output } = yield* promtool(["test", "rules", file], "")
          assert.strictEqual(code, 0, output)
        })
    )
  }
)

const Families = Schema.Array(
  Schema.Struct({
    name: Schema.String,
    help: Schema.String,
    type: Schema.String,
    metrics: Schema.NonEmptyArray(Schema.Unknown)
  })
)

/** A parser by others, where it is installed. */
const parser = await (async (name: string) => {
  try {
    const { default: parse }: { readonly default: (text: string) => unknown } = await import(name)
    return Option.some(parse)
  } catch {
    return Option.none()
  }
})("parse-prometheus-text-format")

describe.skipIf(Option.isNone(parser))("parse-prometheus-text-format (skipped where it is not installed)", () => {
  it.live("reads every family with its help, kind and series", () =>
    Effect.gen(function* () {
      const text = yield* exposition
      const families = yield* Schema.decodeUnknown(Families)(Option.getOrThrow(parser)(text))
      const read = new Map(families.map(({ name, type }) => [name, type.toLowerCase()]))
      assert.deepStrictEqual(Object.fromEntries(read), Object.fromEntries(kindsIn(text)))
      for (const { help, name } of families) assert.isNotEmpty(help, name)
      const heap = families.find(({ name }) => name === "process_heap_used_bytes")?.metrics[0]
      assert.match(JSON.stringify(heap), /^\{"value":"\d+"\}$/)
    })
  )
})
