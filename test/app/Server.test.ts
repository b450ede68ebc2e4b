import { execFile } from "node:child_process"
import * as Http from "node:http"
import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { launch } from "../service/Command.ts"
import * as Compiled from "../service/Compiled.ts"
import { serve } from "../service/InProcess.ts"
import { test } from "../Tests.ts"

/** Runs a line as a shell would that it is pasted into. */
const shell = (line: string, env: Readonly<Record<string, string>> = {}) =>
  Effect.async<string>(resume => {
    execFile("sh", ["-c", line], { env: { PATH: process.env.PATH, ...env } }, (error, stdout) =>
      resume(error === null ? Effect.succeed(stdout) : Effect.die(error))
    )
  })

interface Answer {
  readonly status: number
  readonly headers: Http.IncomingHttpHeaders
  readonly body: string
}

const answerOf = (request: Http.ClientRequest) =>
  new Promise<Answer>((resolve, reject) => {
    request.once("error", reject)
    request.once("response", response => {
      let body = ""
      response.on("data", chunk => {
        body += chunk
      })
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }))
    })
  })

const get = (url: string, key?: string) =>
  Effect.promise(() =>
    answerOf(Http.get(url, { agent: false, headers: key === undefined ? {} : { authorization: `Bearer ${key}` } }))
  )

const secrets = { KV_API_KEY: "sesame-write", KV_AGENT_API_KEY: "sesame-read", METRICS_TOKEN: "sesame-metrics" }

const assertLogLine = (line: string) => {
  const { level, message, timestamp, fiber, annotations = {}, spans = {}, ...rest } = JSON.parse(line)
  assert.deepStrictEqual(rest, {}, line)
  assert.match(level, /^(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)$/)
  assert.isNotEmpty(message)
  assert.strictEqual(new Date(timestamp).toISOString(), timestamp)
  assert.match(fiber, /^#\d+$/)
  assert.isObject(annotations)
  assert.isObject(spans)
}

/** Starts an upload and a poll, and returns what ends the upload, and checks the answers to both. */
const startInFlight = (base: string) =>
  Effect.gen(function* () {
    const authorization = `Bearer ${secrets.KV_API_KEY}`
    const body = JSON.stringify({ value: "x".repeat(500_000) })
    const upload = Http.request(`${base}/kv/n/k`, {
      method: "PUT",
      agent: new Http.Agent({ keepAlive: true }),
      headers: { authorization, "content-type": "application/json", "content-length": body.length }
    })
    const uploaded = answerOf(upload)
    upload.write(body.slice(0, 100_000))
    const poll = Http.get(`${base}/changes?wait=60`, { agent: false, headers: { authorization } })
    const polled = answerOf(poll)
    // A later connection is answered, so that the server has taken up the two before.
    yield* Effect.promise(() => new Promise(resolve => poll.once("socket", s => s.once("connect", resolve))))
    assert.strictEqual((yield* get(`${base}/health`)).status, 200)
    return Effect.gen(function* () {
      const empty = yield* Effect.promise(() => polled)
      assert.strictEqual(empty.status, 200)
      assert.deepStrictEqual(JSON.parse(empty.body), { changes: [], lastSeq: 0 })
      upload.end(body.slice(100_000))
      const { status, headers, body: stored } = yield* Effect.promise(() => uploaded)
      assert.strictEqual(status, 200)
      assert.strictEqual(headers.connection, "close")
      assert.strictEqual(JSON.parse(stored).version, 1)
    })
  })

describe("Server", () => {
  test.scoped("prints commands in dev mode that work as pasted", function* () {
    const server = yield* launch({}, ["dev"])
    const [, base] = yield* server.shows(/dev mode, at (\S+)\n[\s\S]*(?: {2}curl.*\n){3}/)
    const lines = server.output.stdout.split("\n").filter(line => line.startsWith("  curl"))
    const [set, read, follow] = yield* Effect.forEach(lines, line => shell(line))
    const entry = JSON.parse(set!)
    assert.strictEqual(entry.version, 1)
    assert.strictEqual(entry.value, "world")
    assert.deepStrictEqual(JSON.parse(read!), entry)
    const { changes, lastSeq } = JSON.parse(follow!)
    assert.strictEqual(lastSeq, 1)
    assert.strictEqual(changes[0].tenantId, "demo")

    const chat = server.output.stdout.split("\n").find(line => line.startsWith("  npx causewayd chat")) ?? ""
    // What npx runs is the program of the package.
    const npx = `npx() { shift; ${process.execPath} ${Compiled.program("main")} "$@"; }`
    assert.include(yield* shell(`${npx}\n echo hello there | ${chat.trim()}`), '"text":"echo: hello there"')
    assert.match(server.output.stdout, / the key dev-key:\n {2}\S+\/console\n/)
    assert.strictEqual((yield* get(`${base}/console`)).status, 308)
    assert.match(server.output.stdout, /Reference of the API:\n {2}\S+\/docs\n/)
    assert.strictEqual((yield* get(`${base}/docs`)).status, 308)

    const { metrics } = JSON.parse((yield* get(`${base}/api/metrics`)).body)
    assert.deepInclude(metrics, {
      name: "http_requests_total",
      kind: "counter",
      labels: { route: "/api/v1/kv/{namespace}/{key}", method: "PUT", status: "200" },
      value: 1
    })
    assert.strictEqual((yield* get(`${base}/metrics`)).status, 404)

    yield* server.kill("SIGINT")
    assert.deepStrictEqual(yield* server.ended, { code: 0, signal: null })
    assert.strictEqual(server.output.stderr, "")
  })

  test.scopedLive("refers to a configured key by its shell variable", function* () {
    const pages = { CONSOLE_ENABLED: "false", REFERENCE_ENABLED: "false" }
    const server = yield* serve({ DEV_MODE: "true", KV_API_KEY: "sesame", ...pages })
    const [set] = server
      .output()
      .split("\n")
      .filter(line => line.startsWith("  curl"))
    for (const absent of ["sesame", "/console", "/docs"]) assert.notInclude(server.output(), absent)
    assert.strictEqual(JSON.parse(yield* shell(set!, { KV_API_KEY: "sesame" })).version, 1)
  })

  test.scoped(
    "logs JSON without secrets in production, protects its metrics, and finishes requests in flight",
    function* () {
      const server = yield* launch({ ...secrets, METRICS_PROMETHEUS: "true", LOG_LEVEL: "trace" })
      const [, port] = yield* server.shows(/"port":(\d+)[,}]/)
      const base = `http://127.0.0.1:${port}`
      assert.strictEqual((yield* get(`${base}/api/v1/changes`, secrets.KV_AGENT_API_KEY)).status, 200)
      assert.strictEqual((yield* get(`${base}/api/v1/changes`, secrets.METRICS_TOKEN)).status, 401)
      assert.strictEqual((yield* get(`${base}/api/metrics`)).status, 404)
      const refused = yield* get(`${base}/metrics`, secrets.KV_API_KEY)
      assert.strictEqual(refused.status, 401)
      assert.deepStrictEqual(JSON.parse(refused.body), { error: "Unauthorized" })
      const { status, headers, body } = yield* get(`${base}/metrics`, secrets.METRICS_TOKEN)
      assert.strictEqual(status, 200)
      assert.strictEqual(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
      assert.include(body, 'http_requests_total{method="GET",route="/api/v1/changes",status="200"} 1\n')
      assert.match(body, /^process_resident_memory_bytes \d+$/m)
      assert.notInclude(body, "effect_fiber_")

      const finished = yield* startInFlight(`${base}/api/v1`)
      yield* server.kill("SIGTERM")
      yield* server.shows(/"Draining"/)
      yield* finished
      assert.deepStrictEqual(yield* server.ended, { code: 0, signal: null })
      const { stdout, stderr } = server.output
      assert.strictEqual(stderr, "")
      assert.notInclude(stdout, "sesame")
      const lines = stdout.trimEnd().split("\n")
      assert.isAtLeast(lines.length, 2)
      lines.forEach(assertLogLine)
    }
  )

  test.scoped("survives the reader of its log", function* () {
    const server = yield* launch(secrets)
    yield* server.shows(/"Listening"/)
    yield* server.abandonOutput
    yield* server.kill("SIGTERM")
    assert.deepStrictEqual(yield* server.ended, { code: 0, signal: null })
    assert.strictEqual(server.output.stderr, "")
  })
})
