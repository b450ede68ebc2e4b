import { assert, describe } from "@effect/vitest"
import { Effect, Either, Option, Schema } from "effect"
import * as Tracer from "../../../src/base/Observability/Tracer.ts"
import { AgentPlatform } from "../../../src/Upstream/AgentPlatform.ts"
import { keys } from "../../Harness.ts"
import { localServer } from "../../LocalServer.ts"
import { isLong } from "../../Scale.ts"
import { launch } from "../../service/Command.ts"
import { test } from "../../Tests.ts"
import * as Collector from "./Collector.ts"
import * as Fixture from "./Fixture.ts"

const remote = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" }
const traceparent = `00-${remote.traceId}-${remote.spanId}-01`

/** An upstream that keeps the trace context of what it is asked. */
const upstream = Effect.gen(function* () {
  const contexts: Array<string | undefined> = []
  const { url } = yield* localServer((request, response) => {
    const { traceparent } = request.headers
    contexts.push(typeof traceparent === "string" ? traceparent : undefined)
    response.writeHead(request.url === "/health" ? 200 : 404, { "content-type": "application/json" }).end("[]")
  })
  return { contexts, url }
})

const send = (url: string, headers: Readonly<Record<string, string>> = {}, init: RequestInit = {}) =>
  Effect.promise(async () => {
    const response = await fetch(url, { ...init, headers: { authorization: `Bearer ${keys.write}`, ...headers } })
    return { status: response.status, body: await response.text() }
  })

/** Asks a service that sends its spans to a collector, and stops it. */
const ask = (
  options: Parameters<typeof Fixture.serve>[0],
  target: Tracer.Collector,
  ...requests: ReadonlyArray<readonly [path: string, headers?: Readonly<Record<string, string>>]>
) =>
  Effect.gen(function* () {
    const url = yield* Fixture.serve({ ...options, tracing: Tracer.layerFor(Option.some(target)) })
    return yield* Effect.forEach(requests, ([path, headers]) =>
      Effect.map(send(url + path, headers), ({ status }) => status)
    )
  }).pipe(Effect.scoped)

/** Spans as names below names, from the one whose parent is `parent`. */
const tree = (spans: ReadonlyArray<Collector.Span>, parent: string): ReadonlyArray<unknown> =>
  spans
    .filter(({ parentSpanId }) => parentSpanId === parent)
    .map(({ name, spanId }) => {
      const below = tree(spans, spanId)
      return below.length === 0 ? name : [name, ...below]
    })

const attribute = (span: Collector.Span | undefined, name: string) =>
  span?.attributes.find(({ key }) => key === name)?.value

describe("a trace", () => {
  test.scopedLive("is one tree, from the client's span through the request to the upstream", function* () {
    const { spans, target } = yield* Collector.collector()
    const { contexts, url: platform } = yield* upstream
    const headers = { traceparent, "x-request-id": "request-1" }
    assert.deepStrictEqual(yield* ask({ platform }, target, ["/health", headers]), [200])
    const found = (yield* spans).filter(({ traceId }) => traceId === remote.traceId)
    assert.deepStrictEqual(tree(found, remote.spanId), [["http.server GET", ["health.health", "http.client GET"]]])
    assert.lengthOf(found, 3)
    const span = (name: string) => found.find(span => span.name === name)
    const [server, client] = [span("http.server GET"), span("http.client GET")]
    assert.deepInclude(server, { kind: Collector.kind.server, status: { code: Collector.code.ok } })
    assert.deepInclude(client, { kind: Collector.kind.client, status: { code: Collector.code.ok } })
    assert.deepStrictEqual(attribute(server, "http.route"), { stringValue: "/health" })
    assert.deepStrictEqual(attribute(server, "http.request.id"), { stringValue: "request-1" })
    assert.deepStrictEqual(contexts, [`00-${remote.traceId}-${client?.spanId}-01`])
  })

  test.scopedLive("continues through the calls of the upstream's client", function* () {
    const { spans, target } = yield* Collector.collector()
    const { contexts, url: platform } = yield* upstream
    const outcome = yield* Effect.flatMap(AgentPlatform, ({ readFile }) => readFile("i-1", "a.txt")).pipe(
      Effect.either,
      Effect.withSpan("turn"),
      Effect.provide(Fixture.upstreams(Option.some(platform))),
      Effect.provide(Tracer.layerFor(Option.some(target)))
    )
    assert.isTrue(Either.isLeft(outcome))
    const all = yield* spans
    const turn = all.find(({ name }) => name === "turn")
    assert.isUndefined(turn?.parentSpanId)
    assert.deepStrictEqual(tree(all, turn?.spanId ?? ""), [["agent_platform.read_file", "http.client GET"]])
    const call = all.find(({ name }) => name === "agent_platform.read_file")
    assert.strictEqual(call?.status.code, Collector.code.error)
    assert.include(call?.status.message, "404")
    assert.lengthOf(contexts, 1)
    assert.include(contexts[0], turn?.traceId)
  })

  test.scopedLive("that a client asked not to sample is not sent", function* () {
    const { spans, target } = yield* Collector.collector()
    const { contexts, url: platform } = yield* upstream
    yield* ask({ platform }, target, ["/health", { traceparent: traceparent.replace(/01$/, "00") }])
    assert.notInclude(
      (yield* spans).map(({ traceId }) => traceId),
      remote.traceId
    )
    assert.match(contexts[0] ?? "", new RegExp(`^00-${remote.traceId}-[0-9a-f]{16}-00$`))
  })

  test.scopedLive(
    "treats a refusal as an answer and a failure as an error; an invalid traceparent begins a trace",
    function* () {
      const { spans, target } = yield* Collector.collector()
      const invalid = { traceparent: "00-nonsense-1-01" }
      const answers = yield* ask({}, target, ["/api/v1/kv/n/none", invalid], ["/api/v1/changes/ws"])
      assert.deepStrictEqual(answers, [404, 500])
      const ends = (yield* spans)
        .filter(({ kind }) => kind === Collector.kind.server)
        .map(span => [attribute(span, "http.response.status_code"), span.status.code])
      assert.deepStrictEqual(ends, [
        [{ intValue: 404 }, Collector.code.ok],
        [{ intValue: 500 }, Collector.code.error]
      ])
      for (const { traceId } of yield* spans) assert.match(traceId, /^[0-9a-f]{32}$/)
    }
  )

  test.scopedLive("does not delay requests or shutdown if the collector hangs or is unavailable", function* () {
    const hanging = yield* Collector.collector({ hangs: true })
    // More than a batch, so that an export is under way.
    for (const [target, count] of [
      [hanging.target, 300],
      [{ ...hanging.target, endpoint: new URL("http://127.0.0.1:1") }, 20]
    ] as const) {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const url = yield* Fixture.serve({ tracing: Tracer.layerFor(Option.some(target)) })
          const answers = yield* Effect.all(
            Array.from({ length: count }, () => send(`${url}/api/v1/health`)),
            { concurrency: 20 }
          )
          assert.isTrue(answers.every(({ status }) => status === 200))
        })
      )
    }
    assert.isNotEmpty(hanging.requests)
  })
})

/** Makes packages with a matching name missing, in a process with these NODE_OPTIONS. */
const without = (pattern: string): string => {
  const data = (source: string) => `data:text/javascript,${encodeURIComponent(source)}`
  const hooks = `export const resolve = async (specifier, context, next) => {
    if (new RegExp(${JSON.stringify(pattern)}).test(specifier)) {
      throw Object.assign(new Error("Cannot find package " + specifier), { code: "ERR_MODULE_NOT_FOUND" })
    }
    return next(specifier, context)
  }`
  return `--import=${data(`import { register } from "node:module"; register(${JSON.stringify(data(hooks))})`)}`
}

const Listening = Schema.parseJson(
  Schema.Struct({ message: Schema.Literal("Listening"), annotations: Schema.Struct({ port: Schema.Int }) })
)

/**
 * Runs the service, sends a few requests, stops it once something has happened, and returns what a client and an
 * operator see.
 */
const session = (env: Readonly<Record<string, string>>, until: Effect.Effect<unknown> = Effect.void) =>
  Effect.scoped(
    Effect.gen(function* () {
      const server = yield* launch({ KV_API_KEY: "sesame", LOG_LEVEL: "debug", ...env })
      const [line] = yield* server.shows(/^.*"Listening".*$/m)
      const { annotations } = yield* Schema.decode(Listening)(line)
      const url = `http://127.0.0.1:${annotations.port}`
      const authorization = "Bearer sesame"
      const put = { method: "PUT", body: '{"value":[1,{"b":2}]}' }
      const answers = [
        yield* send(`${url}/api/v1/kv/n/k`, { authorization, "content-type": "application/json", traceparent }, put),
        yield* send(`${url}/api/v1/kv/n/k`, { authorization }),
        yield* send(`${url}/api/v1/kv/n/none`, { authorization }),
        yield* send(`${url}/api/v1/kv/n/k`)
      ].map(({ body, status }) => ({ status, body: body.replace(/"updatedAt":\d+/, "") }))
      yield* until
      yield* server.kill("SIGTERM")
      const ended = yield* server.ended
      const { stderr, stdout } = server.output
      const lines: ReadonlyArray<{ readonly level: string; readonly message: string }> = stdout
        .trim()
        .split("\n")
        .map(line => JSON.parse(line))
      const messages = (isDebug: boolean) =>
        lines.flatMap(({ level, message }) => ((level === "DEBUG") === isDebug ? [message.split("\n", 1)[0]] : []))
      return { seen: { answers, ended, stderr, messages: messages(false) }, debug: messages(true) }
    })
  )

if (isLong)
  describe("the running service", () => {
    test.scopedLive(
      "traces if an endpoint is set, and runs the same without the packages or without an endpoint",
      function* () {
        const { requests, spans, target } = yield* Collector.collector()
        const traced = { OTEL_EXPORTER_OTLP_ENDPOINT: target.endpoint.toString(), OTEL_SERVICE_NAME: "tested" }
        const plain = (yield* session({})).seen
        assert.deepStrictEqual(plain.ended, { code: 0, signal: null })
        assert.deepStrictEqual(
          plain.answers.map(({ status }) => status),
          [200, 200, 404, 401]
        )
        assert.lengthOf(requests, 0)

        const bereft = yield* session({ ...traced, NODE_OPTIONS: without("^@(effect/)?opentelemetry(/|$)") })
        assert.include(bereft.debug, "Tracing is off: its optional packages cannot be loaded")
        assert.deepStrictEqual(bereft.seen, plain)
        assert.lengthOf(requests, 0)

        // They are sent early: the end of the process waits for a collector for a moment only.
        const early = { ...traced, OTEL_BSP_SCHEDULE_DELAY: "50" }
        const names = Effect.map(spans, all =>
          all.flatMap(({ name, traceId }) => (traceId === remote.traceId ? name : []))
        )
        const areSent = Effect.repeat(Effect.delay(names, "20 millis"), {
          until: sent => ["http.server PUT", "kv.set"].every(name => sent.includes(name))
        })
        const whole = yield* session(early, areSent)
        assert.deepStrictEqual(whole.seen, plain)
        const sent = requests.map(({ body }) => body).join("")
        assert.include(sent, '"tested"')
        assert.notInclude(sent, "sesame")
      }
    )
  })
