/** How the console is served: its files, their headers, and what switches it off. */
import { brotliDecompressSync, gunzipSync } from "node:zlib"
import * as HttpApi from "@effect/platform/HttpApi"
import { assert, beforeAll, describe } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Causeway, ConsoleGroup, DrainingSignal, HealthRoutes, KvRoutes, NodeServer } from "../../src/exports/index.ts"
import { memory } from "../../src/exports/store.ts"
import { isLong } from "../Scale.ts"
import { serve } from "../service/InProcess.ts"
import { test } from "../Tests.ts"
import { buildPages, builtPages } from "./Service.ts"

beforeAll(() => buildPages(isLong))

/** A request as it is, without what `fetch` does by itself. */
const get = (url: string, headers: Readonly<Record<string, string>> = {}, method = "GET") =>
  Effect.promise(() =>
    import("node:http").then(
      ({ request }) =>
        new Promise<{ status: number; headers: Record<string, unknown>; body: Buffer }>((resolve, reject) => {
          const sent = request(url, { method, headers, agent: false }, response => {
            const chunks: Array<Buffer> = []
            response.on("data", chunk => chunks.push(chunk))
            response.on("end", () =>
              resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(chunks) })
            )
          })
          sent.once("error", reject)
          sent.end()
        })
    )
  )

/** Serves in dev mode, which has an agent platform. */
const start = (env: Readonly<Record<string, string>> = {}) => serve({ DEV_MODE: "true", ...env })

const scriptIn = (html: string): string => /src="\.\/(assets\/[^"]+\.js)"/.exec(html)![1]!

describe("The console", () => {
  test.scopedLive("is a page with a strict policy, and files that may be cached without limit", function* () {
    const { url: base } = yield* start()
    const bare = yield* get(`${base}/console`)
    assert.deepStrictEqual([bare.status, bare.headers.location], [308, "console/"])

    const page = yield* get(`${base}/console/`)
    assert.strictEqual(page.status, 200)
    assert.strictEqual(page.headers["content-type"], "text/html; charset=utf-8")
    assert.strictEqual(page.headers["cache-control"], "no-cache")
    const policy = String(page.headers["content-security-policy"])
    assert.include(policy, "default-src 'none'")
    assert.include(policy, "frame-ancestors 'none'")
    assert.notInclude(policy, "unsafe")
    const html = page.body.toString()
    assert.notInclude(html, "__ROUTES__")
    assert.include(html, "&#34;store&#34;:&#34;../api/v1&#34;")
    assert.notMatch(html, /(?:src|href)="(?:https?:)?\/\//)
    const again = yield* get(`${base}/console/`, { "if-none-match": String(page.headers.etag) })
    assert.deepStrictEqual([again.status, again.body.length], [304, 0])

    const script = `${base}/console/${scriptIn(html)}`
    const plain = yield* get(script)
    assert.strictEqual(plain.headers["content-type"], "text/javascript; charset=utf-8")
    assert.strictEqual(plain.headers["cache-control"], "public, max-age=31536000, immutable")
    assert.strictEqual(plain.headers.vary, "Accept-Encoding")
    assert.isUndefined(plain.headers["content-encoding"])
    const brotli = yield* get(script, { "accept-encoding": "gzip, deflate, br" })
    assert.strictEqual(brotli.headers["content-encoding"], "br")
    assert.isTrue(brotliDecompressSync(brotli.body).equals(plain.body))
    const gzip = yield* get(script, { "accept-encoding": "gzip, br;q=0" })
    assert.strictEqual(gzip.headers["content-encoding"], "gzip")
    assert.isTrue(gunzipSync(gzip.body).equals(plain.body))
    assert.strictEqual(new Set([plain, brotli, gzip].map(({ headers }) => headers.etag)).size, 3)
    const known = yield* get(script, { "accept-encoding": "br", "if-none-match": `"x", ${brotli.headers.etag}` })
    assert.strictEqual(known.status, 304)
    const head = yield* get(script, {}, "HEAD")
    assert.deepStrictEqual([head.status, head.headers["content-length"]], [200, String(plain.body.length)])

    const long = `assets/${"a".repeat(300)}.js`
    const paths = ["assets/none.js", "assets/..%2Findex.html", "assets/%2e%2e%2findex.html", "index.html", long]
    for (const path of paths) {
      assert.strictEqual((yield* get(`${base}/console/${path}`)).status, 404, path)
    }
    const put = yield* get(`${base}/console/`, {}, "PUT")
    assert.deepStrictEqual([put.status, put.headers.allow], [405, "GET, HEAD"])
    const document = yield* get(`${base}/api/v1/openapi.json`, { authorization: "Bearer dev-key" })
    assert.notInclude(document.body.toString(), "/console")
  })

  test.scopedLive("opens at the root in a browser; other clients get an index, without a credential", function* () {
    const browser = { accept: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" }
    const { url: base } = yield* serve({ KV_API_KEY: "key" })
    const root = yield* get(`${base}/`, browser)
    assert.deepStrictEqual(
      [root.status, root.headers.location, root.headers.vary, root.headers["cache-control"]],
      [302, "console/", "Accept", "no-cache"]
    )
    const paths = { console: "console/", docs: "docs/", health: "health", ready: "api/v1/ready" }
    for (const headers of [{}, { accept: "*/*" }, { accept: "application/json, text/html;q=0.9" }]) {
      const { body, headers: sent, status } = yield* get(`${base}/`, headers)
      assert.deepStrictEqual([status, sent["content-type"], sent.vary], [200, "application/json", "Accept"])
      const { version, ...rest } = JSON.parse(body.toString())
      assert.deepStrictEqual([typeof version, rest], ["string", paths])
    }
    for (const path of Object.values(paths)) {
      assert.strictEqual((yield* get(new URL(path, `${base}/`).href)).status, 200, path)
    }
    const head = yield* get(`${base}/`, {}, "HEAD")
    assert.deepStrictEqual([head.status, head.body.length], [200, 0])
    const document = yield* get(`${base}/api/v1/openapi.json`, { authorization: "Bearer key" })
    assert.notProperty(JSON.parse(document.body.toString()).paths, "/")
  })

  test.scopedLive("is not what the root leads to if it is switched off", function* () {
    const html = { accept: "text/html" }
    const { url: without } = yield* start({ CONSOLE_ENABLED: "false" })
    assert.strictEqual((yield* get(`${without}/`, html)).headers.location, "docs/")
    const { url: bare } = yield* start({ CONSOLE_ENABLED: "false", REFERENCE_ENABLED: "false" })
    const { body, status } = yield* get(`${bare}/`, html)
    assert.strictEqual(status, 200)
    assert.hasAllKeys(JSON.parse(body.toString()), ["version", "health", "ready"])
  })

  test.scopedLive("is another answer for each origin, to caches that keep it", function* () {
    const origin = "https://app.example.com"
    const { url: base } = yield* start({ HTTP_ALLOWED_ORIGINS: origin })
    const page = yield* get(`${base}/console/`, { origin })
    for (const { headers } of [page, yield* get(`${base}/console/${scriptIn(page.body.toString())}`, { origin })]) {
      assert.strictEqual(headers["access-control-allow-origin"], origin)
      assert.strictEqual(headers.vary, "Origin, Accept-Encoding")
    }
  })

  test.scopedLive("writes into the page whether it is dev mode, which has metrics as JSON", function* () {
    for (const [env, named] of [
      [{ DEV_MODE: "true" }, ["activity", "metricsJson"]],
      [{ METRICS_PROMETHEUS: "true" }, ["activity"]]
    ] as const) {
      const { url } = yield* serve({ KV_API_KEY: "key", ...env })
      const page = yield* get(`${url}/console/`)
      const names = [...page.body.toString().matchAll(/&#34;(activity|\w*metrics\w*)&#34;:/gi)].map(([, name]) => name)
      assert.deepStrictEqual(names.sort(), [...named], JSON.stringify(env))
    }
  })

  for (const [name, variable, other] of [
    ["console", "CONSOLE_ENABLED", "docs"],
    ["docs", "REFERENCE_ENABLED", "console"]
  ] as const) {
    test.scopedLive(`can be switched off by ${variable}, and /${other} does not lead to it then`, function* () {
      const { url: base } = yield* start({ [variable]: "false" })
      for (const path of ["", "/", "/assets/x.js"]) {
        const { body, status } = yield* get(`${base}/${name}${path}`)
        assert.deepStrictEqual([status, body.toString()], [404, '{"error":"Not found"}'])
      }
      const page = yield* get(`${base}/${other}/`)
      assert.strictEqual(page.status, 200)
      assert.notInclude(String(page.headers["content-security-policy"]), "unsafe")
      assert.include(page.body.toString(), `&#34;../${other}&#34;`)
      assert.notInclude(page.body.toString(), `&#34;../${name}&#34;`)
    })
  }

  test.scopedLive("has with it a page to talk with an agent, in dev mode only", function* () {
    const { url: base } = yield* start()
    const page = yield* get(`${base}/chat/`)
    assert.strictEqual(page.status, 200)
    assert.include(page.body.toString(), "&#34;chats&#34;:&#34;../api/v1/chat&#34;")
    assert.strictEqual((yield* get(`${base}/chat/${scriptIn(page.body.toString())}`)).status, 200)
    const { url } = yield* serve({ KV_API_KEY: "key" })
    for (const path of ["", "/", "/assets/main-1.js"])
      assert.strictEqual((yield* get(`${url}/chat${path}`)).status, 404)
  })

  test.scopedLive("writes the paths of the mounted parts into the page, and no others", function* () {
    const api = HttpApi.make("host")
      .add(KvRoutes.prefix("/store"))
      .add(HealthRoutes.prefix("/probes"))
      .add(ConsoleGroup.prefix("/admin/tools"))
    const layer = Causeway.layerEdge({
      api,
      server: { host: "127.0.0.1", port: 0 },
      store: memory,
      identity: () => Effect.succeed({ access: "read" as const }),
      pages: { directory: builtPages() }
    }).pipe(Layer.provide(DrainingSignal.layer))
    const { address } = yield* Effect.map(Layer.build(layer), context =>
      context.unsafeMap.get(NodeServer.NodeServer.key)
    )
    const { body } = yield* get(`http://127.0.0.1:${address.port}/admin/tools/console/`)
    const content = /name="causeway-routes" content="([^"]*)"/.exec(body.toString())![1]!
    assert.deepStrictEqual(JSON.parse(content.replaceAll("&#34;", '"')), {
      store: "../../../store",
      health: "../../../probes/health",
      ready: "../../../probes/ready",
      console: "../../../admin/tools/console",
      root: "../../../"
    })
  })
})
