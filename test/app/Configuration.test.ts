import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Inspectable, Option, Redacted } from "effect"
import * as Configuration from "../../src/app/Configuration.ts"
import * as StoreUrl from "../../src/Storage/StoreUrl.ts"
import { test } from "../Tests.ts"

const load = (variables: Readonly<Record<string, string>>) =>
  Effect.withConfigProvider(
    Configuration.load,
    ConfigProvider.fromMap(new Map(Object.entries(variables)), { pathDelim: "_" })
  )

const problems = (variables: Readonly<Record<string, string>>) =>
  Effect.map(Effect.flip(load(variables)), ({ problems }) => problems.map(({ variable }) => variable))

const production = { KV_API_KEY: "secret" }
const dev = { DEV_MODE: "true" }

const shown = (key: Option.Option<Redacted.Redacted>) => Option.map(key, Redacted.value)

describe("Configuration", () => {
  test.effect("has defaults for everything but the key", function* () {
    const { address, collector, devMode, keys, logLevel, metrics, retention, store, warnings } = yield* load(production)
    assert.deepStrictEqual(address, { host: "127.0.0.1", port: 8080 })
    assert.deepStrictEqual(store, { directory: "./data", postgres: Option.none(), lease: Duration.seconds(10) })
    assert.strictEqual(logLevel, "info")
    assert.isFalse(devMode)
    assert.isFalse(metrics.prometheus)
    assert.isTrue(Option.isNone(collector) && Option.isNone(retention) && Option.isNone(keys.read))
    assert.lengthOf(warnings, 1)
    assert.include(warnings[0]!, "no client can open the WebSocket")
  })

  test.effect("treats an empty variable as unset", function* () {
    const empty = { PORT: "", HOST: " ", LOG_LEVEL: "", METRICS_TOKEN: "  ", OTEL_EXPORTER_OTLP_ENDPOINT: "" }
    assert.deepStrictEqual(yield* load({ ...production, ...empty }), yield* load(production))
    assert.deepStrictEqual(yield* problems({ KV_API_KEY: "" }), ["KV_API_KEY"])
    assert.deepStrictEqual(yield* problems({ KV_API_KEY: " " }), ["KV_API_KEY"])
  })

  test.effect("has agents by AG-UI in place of a platform", function* () {
    const { agents } = yield* load({
      ...production,
      AGENT_URL: "https://agent.example/run/?v=1",
      AGENT_URLS: "coder=http://one.test/a, writer=https://two.test/",
      AGENT_HEADERS: "X-Region=eu, x-note=a%2Cb",
      AGENT_API_KEY: "key",
      AGENT_HISTORY_MESSAGES: "1"
    })
    assert.deepStrictEqual(agents.url, Option.some("https://agent.example/run/?v=1"))
    assert.deepStrictEqual(
      [...agents.urls],
      [
        ["coder", "http://one.test/a"],
        ["writer", "https://two.test/"]
      ]
    )
    const headers = Object.entries(agents.headers).map(([name, value]) => [name, Redacted.value(value)])
    assert.deepStrictEqual(headers, [
      ["x-region", "eu"],
      ["x-note", "a,b"]
    ])
    assert.deepStrictEqual(agents.history, { messages: 1, bytes: 512 * 1024 })
    const agent = { ...production, AGENT_URL: "http://agent.test" }
    const both = yield* Effect.flip(load({ ...agent, AGENT_PLATFORM_URL: "http://platform.test" }))
    assert.include(both.message, "AGENT_URL: it must not be set together with AGENT_PLATFORM_URL")
    const twice = { AGENT_API_KEY: "key", AGENT_HEADERS: "authorization=Basic%20eA" }
    assert.deepStrictEqual(yield* problems({ ...agent, ...twice }), ["AGENT_HEADERS"])
    assert.deepStrictEqual(yield* problems({ ...production, AGENT_HEALTH_URL: "http://agent.test" }), [
      "AGENT_HEALTH_URL"
    ])
    for (const [name, value] of [
      ["AGENT_URL", "http://user@agent.test"],
      ["AGENT_URLS", "coder"],
      ["AGENT_URLS", "coder=http://a.test,coder=http://b.test"],
      ["AGENT_HEADERS", "host=other"],
      ["AGENT_HEADERS", "x=a\nb"],
      ["AGENT_HISTORY_MESSAGES", "0"]
    ] as const) {
      assert.deepStrictEqual(yield* problems({ ...agent, [name]: value }), [name], `${name}=${value}`)
    }
    const secret = yield* Effect.flip(load({ ...agent, AGENT_HEADERS: "x=hidden\n" + "y" }))
    assert.notInclude(secret.message, "hidden")
  })

  test.effect("is in dev mode only if DEV_MODE is true and NODE_ENV is not production", function* () {
    const { devMode, keys } = yield* load(dev)
    assert.isTrue(devMode)
    assert.deepStrictEqual(shown(keys.write), Option.some("dev-key"))
    assert.deepStrictEqual(shown(keys.read), Option.some("dev-agent-key"))
    assert.deepStrictEqual(shown((yield* load({ ...dev, ...production })).keys.write), Option.some("secret"))
    assert.isTrue((yield* load({ ...dev, NODE_ENV: "test" })).devMode)
    assert.isFalse((yield* load({ ...production, ...dev, NODE_ENV: "production" })).devMode)
    assert.deepStrictEqual(yield* problems({ ...dev, NODE_ENV: "production" }), ["KV_API_KEY"])
  })

  test.effect("reports every problem once", function* () {
    const wrong = {
      DEV_MODE: "maybe",
      PORT: "-1",
      LIMIT_KEY_BYTES: "0",
      CHANGES_RETENTION: "soon",
      METRICS_PROMETHEUS: "2",
      OTEL_EXPORTER_OTLP_ENDPOINT: "ftp://collector",
      LOG_LEVEL: "verbose"
    }
    assert.sameMembers([...(yield* problems(wrong))], Object.keys(wrong))
    const found = yield* problems({ PORT: "x", KV_API_KEY: "same", KV_AGENT_API_KEY: "same" })
    assert.sameMembers([...found], ["PORT", "KV_AGENT_API_KEY"])
  })

  test.effect("refuses one key for both credentials", function* () {
    const same = yield* Effect.flip(load({ KV_API_KEY: "sesame", KV_AGENT_API_KEY: "sesame" }))
    assert.include(same.message, "KV_AGENT_API_KEY: it only reads, so it must differ from KV_API_KEY")
    assert.notInclude(same.message, "sesame")
    assert.deepStrictEqual(yield* problems({ ...dev, KV_AGENT_API_KEY: "dev-key" }), ["KV_AGENT_API_KEY"])
  })

  test.effect("prints no secrets", function* () {
    const configuration = yield* load({ KV_API_KEY: "sesame", KV_AGENT_API_KEY: "sesame2", METRICS_TOKEN: "sesame3" })
    assert.notInclude(Inspectable.toStringUnknown(configuration), "sesame")
  })

  test.effect(
    "refuses keys that no header could carry, and passwords in addresses, without showing them",
    function* () {
      for (const name of ["KV_API_KEY", "KV_AGENT_API_KEY", "METRICS_TOKEN", "INFERENCE_API_KEY"]) {
        const refused = yield* Effect.flip(load({ ...production, [name]: "open sesame" }))
        assert.include(refused.message, `  ${name}: the value is not visible ASCII without blanks`)
        assert.notInclude(refused.message, "sesame")
      }
      assert.deepStrictEqual(yield* problems({ ...production, AGENT_PLATFORM_API_KEY: "öffne" }), [
        "AGENT_PLATFORM_API_KEY"
      ])
      for (const name of ["OTEL_EXPORTER_OTLP_ENDPOINT", "AGENT_PLATFORM_URL", "INFERENCE_URL"]) {
        const refused = yield* Effect.flip(load({ ...production, [name]: "htp://u:sesame@h" }))
        assert.include(refused.message, `  ${name}: "htp://…@h" is not an http or https URL`)
        assert.notInclude(refused.message, "sesame")
      }
    }
  )

  test.effect("refuses an address of the node by which others would reach themselves", function* () {
    const secret = { NODE_SECRET: "s".repeat(32) }
    for (const address of ["0.0.0.0:9000", "[::]:9000", "[0:0:0:0:0:0:0:0]:9000"]) {
      const refused = yield* Effect.flip(load({ ...production, ...secret, NODE_ADDRESS: address }))
      assert.include(refused.message, `NODE_ADDRESS: "${address}" is not <host>:<port> that other nodes can connect to`)
    }
    for (const address of ["10.0.0.1:9000", "[::1]:9000", "node1:9000"]) {
      yield* load({ ...production, ...secret, NODE_ADDRESS: address })
    }
  })

  test.effect("warns of likely mistakes", function* () {
    const warnings = (variables: Readonly<Record<string, string>>) =>
      Effect.map(load(variables), ({ warnings }) => warnings.join("\n"))
    assert.include(yield* warnings({ ...production, ...dev, NODE_ENV: "production" }), "DEV_MODE is ignored")
    assert.include(yield* warnings({ ...dev, HOST: "0.0.0.0" }), "HOST 0.0.0.0")
    assert.strictEqual(yield* warnings({ ...dev, HOST: "::1" }), "")
    assert.strictEqual(yield* warnings({ ...dev, ...production, KV_AGENT_API_KEY: "other", HOST: "0.0.0.0" }), "")
    assert.include(yield* warnings({ ...production, METRICS_TOKEN: "t" }), "METRICS_TOKEN is set")
    // Misspelled ones, among variables of other programs.
    const others = { HOME: "/", PATH: "/bin", PORTS: "1", NODE_EXTRA_CA_CERTS: "x", KUBERNETES_PORT_443_TCP: "x" }
    const misspelled = { LIMIT_KEY_BYTE: "5", LIMIT_BODY_BYTSE: "5", GATEWAY_JWT_SECERT: "x" }
    assert.sameMembers(
      [...(yield* load({ ...dev, ...others, ...misspelled })).warnings],
      [
        "LIMIT_KEY_BYTE is ignored: is LIMIT_KEY_BYTES meant?",
        "LIMIT_BODY_BYTSE is ignored: is LIMIT_BODY_BYTES meant?",
        "GATEWAY_JWT_SECERT is ignored: is GATEWAY_JWT_SECRET meant?"
      ]
    )
    const address = { ...production, INFERENCE_URL: "http://inference.test:8000" }
    assert.include(yield* warnings(address), "INFERENCE_URL is set but INFERENCE_API_KEY is empty")
    assert.notInclude(yield* warnings({ ...address, INFERENCE_API_KEY: "key" }), "INFERENCE")
    const checked = { GATEWAY_JWT_AUDIENCE: "causeway", GATEWAY_JWT_ISSUER: "https://id.example" }
    const signed = { ...production, GATEWAY_JWT_SECRET: "s".repeat(32) }
    const unchecked = yield* warnings(signed)
    for (const name of Object.keys(checked)) assert.include(unchecked, `${name} is not set`)
    assert.strictEqual(yield* warnings({ ...signed, ...dev }), "")
    const open = { ...signed, ...checked, HOST: "0.0.0.0", METRICS_PROMETHEUS: "true" }
    assert.include(yield* warnings(open), "/metrics is open")
    assert.strictEqual(yield* warnings({ ...open, METRICS_TOKEN: "t" }), "")
  })

  test.effect("parses durations and addresses", function* () {
    const { collector, retention } = yield* load({
      ...production,
      CHANGES_RETENTION: "7 days",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318/"
    })
    assert.deepStrictEqual(retention, Option.some(Duration.days(7)))
    assert.deepStrictEqual(
      Option.map(collector, ({ endpoint, serviceName }) => [endpoint.href, serviceName]),
      Option.some(["http://collector:4318/", "causeway"])
    )
  })

  it("parses the addresses of stores", () => {
    const parsed = (text: string) => Option.getOrUndefined(StoreUrl.parse(text))
    assert.strictEqual(parsed("sqlite:"), "")
    assert.strictEqual(parsed("sqlite:data"), "data")
    assert.strictEqual(parsed("sqlite:./data/kv.db"), "./data")
    assert.strictEqual(parsed("sqlite:kv.db"), ".")
    assert.strictEqual(parsed("sqlite:///var/lib/causeway"), "/var/lib/causeway")
    assert.strictEqual(parsed("sqlite:/var/lib/causeway/kv.db"), "/var/lib/causeway")
    for (const other of ["", "data", "postgres://u:p@h/d", "sqlite::memory:", "sqlite:x?mode=ro", "file:x"]) {
      assert.isUndefined(parsed(other), other)
    }
  })
})
