/** The image, the systemd unit and the examples for Kubernetes: whether they are valid and agree with the service. */
import { execFile, execFileSync, spawnSync } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Option } from "effect"
import { parseAllDocuments } from "yaml"
import * as Configuration from "../../src/app/Configuration.ts"
import * as Setting from "../../src/base/Setting.ts"
import { HealthGroup } from "../../src/Operations/Health/Api.ts"
import { isLong } from "../Scale.ts"
import { test } from "../Tests.ts"
import { isRunnable } from "./Page.ts"

const root = fileURLToPath(new URL("../../", import.meta.url))
const read = (file: string): string => readFileSync(join(root, "deploy", file), "utf8")

type Variables = Readonly<Record<string, string>>

/** The configuration that variables make, all of which the service must know. */
const configurationOf = (variables: Variables) =>
  Effect.tap(
    Effect.withConfigProvider(
      Configuration.load,
      ConfigProvider.fromMap(new Map(Object.entries(variables)), { pathDelim: "_" })
    ),
    () => {
      const known = Setting.all().map(({ name }) => name)
      assert.includeMembers([...known, "POD_IP"], Object.keys(variables))
    }
  )

interface Linter {
  readonly validate: (
    text: string
  ) => ReadonlyArray<{ readonly message: string; readonly range: { readonly start: { readonly line: number } } }>
}

/** The user of the image, who owns its `/data`. */
const user = 65_532

const program = "/app/node_modules/causewayd/dist/main.js"

describe("The image", () => {
  const instructions = read("Dockerfile")
    .replace(/^#.*\n/gm, "")
    .replace(/\\\n\s*/g, "")
    .split("\n")
    .filter(line => line !== "")
  const last = instructions.slice(instructions.findLastIndex(line => line.startsWith("FROM ")))
  const argumentOf = (name: string): string =>
    last.find(line => line.startsWith(`${name} `))?.slice(name.length + 1) ?? assert.fail(`There is no ${name}`)

  it("is described in the language of Dockerfiles", () => {
    const { validate }: Linter = createRequire(import.meta.url)("dockerfile-utils")
    const complaints = (text: string) =>
      validate(text).map(({ message, range }) => `${range.start.line + 1}: ${message}`)
    assert.deepStrictEqual(complaints(read("Dockerfile")), [])
    assert.isNotEmpty(complaints("FROM node AS build\nCOPY --form=build a b\n"))
    assert.isNotEmpty(complaints("RUN true\n"))
  })

  test.effect("runs the service itself, as an unprivileged user, and reports its health", function* () {
    assert.strictEqual(argumentOf("USER"), `${user}:${user}`)
    assert.deepStrictEqual(JSON.parse(argumentOf("ENTRYPOINT")), ["/nodejs/bin/node", program])
    assert.deepStrictEqual(JSON.parse(argumentOf("HEALTHCHECK").replace(/^.* CMD /, "")), [
      "/nodejs/bin/node",
      program,
      "health"
    ])
    assert.isAbove(instructions.filter(line => line.startsWith("FROM ")).length, 1)
    const variables = Object.fromEntries(
      argumentOf("ENV")
        .split(" ")
        .map(pair => pair.split("=") as [string, string])
    )
    const { address, store } = yield* configurationOf({ ...variables, KV_API_KEY: "sesame" })
    assert.deepStrictEqual(address, { host: "0.0.0.0", port: Number(argumentOf("EXPOSE")) })
    assert.strictEqual(store.directory, argumentOf("VOLUME"))
    // Where `causeway health` asks without an option.
    assert.strictEqual(address.port, 8080)
  })

  interface Manifest {
    readonly dependencies?: Variables
    readonly optionalDependencies?: Variables
    readonly peerDependencies?: Variables
    readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>
  }

  /** The directories of the packages that are installed with a package. */
  const installed = (directory: string, found = new Set<string>()): ReadonlySet<string> => {
    const manifest: Manifest = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
    const { dependencies, optionalDependencies, peerDependencies = {}, peerDependenciesMeta = {} } = manifest
    const peers = Object.keys(peerDependencies).filter(name => peerDependenciesMeta[name]?.optional !== true)
    for (const name of [...peers, ...Object.keys({ ...dependencies, ...optionalDependencies })]) {
      let parent = directory
      while (!existsSync(join(parent, "node_modules", name)) && parent !== dirname(parent)) parent = dirname(parent)
      const place = join(parent, "node_modules", name)
      if (!existsSync(place) || found.has(place)) continue
      found.add(place)
      installed(place, found)
    }
    return found
  }

  it("is made from the lock file, whose packages are those that the service needs and no others", async () => {
    const installing = instructions.find(line => line.includes("npm ci --ignore-scripts")) ?? assert.fail("No npm ci")
    assert.isFalse(instructions.some(line => /npm (?:install|i|update|add)\b/.test(line)))
    // Its commands except the last, which unpack the service. A check without the registry shows what npm would
    // install.
    const commands = installing
      .replace(/^RUN /, "")
      .split(" && ")
      .slice(0, 3)
      .map(command => command.replaceAll("/source/", root).replace("npm ci", "npm ci --dry-run --offline"))
    const directory = mkdtempSync(join(tmpdir(), "causeway-image-"))
    try {
      const run = (script: ReadonlyArray<string>) =>
        promisify(execFile)("sh", ["-ec", script.join("\n")], {
          cwd: directory,
          // An npm that runs the tests with `--silent` hands that on.
          env: { ...process.env, npm_config_loglevel: "notice" },
          maxBuffer: 16 * 1024 * 1024
        })
      const { stdout } = await run(commands)
      const names = [...stdout.matchAll(/^add (\S+) (\S+)$/gm)].map(([, name]) => name!)
      const needed = [...installed(root)].map(path => path.slice(path.lastIndexOf("node_modules/") + 13))
      assert.includeMembers(names, ["effect", "@effect/platform", "@effect/platform-node", "better-sqlite3", "pg"])
      assert.includeMembers(names, needed)
      assert.notIncludeMembers(names, ["vitest", "typescript", "@biomejs/biome", "esbuild"])
      // That npm refuses a lock file of another manifest takes it as long again.
      if (!isLong) return
      const manifest: Manifest = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
      const other = { ...manifest, dependencies: { ...manifest.dependencies, pg: "8.0.0" } }
      writeFileSync(join(directory, "package.json"), JSON.stringify(other))
      const isInstalled = await run(commands.slice(2)).then(
        () => true,
        () => false
      )
      assert.isFalse(isInstalled)
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  it("has less than 250 MB with its base image, as far as that is known without building it", () => {
    const text = instructions.join("\n")
    const removed = [
      ...[...text.matchAll(/-name '\*([^']+)'/g)].map(([, suffix = ""]) => `${suffix.replaceAll(".", "\\.")}$`),
      ...[...text.matchAll(/ (node_modules\/\S+)/g)]
        .map(([, path = ""]) => path)
        .filter(path => !/prebuilds|main\.js/.test(path))
        .map(path => `/${path.replaceAll(".", "\\.").replaceAll("*", "[^/]+")}/`),
      "/prebuilds/(?!linux-x64)"
    ].map(pattern => new RegExp(pattern))
    assert.isAbove(removed.length, 10)
    let bytes = 0
    for (const directory of installed(root)) {
      for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
        const path = join(entry.parentPath, entry.name)
        const isNested = path.slice(directory.length).includes("/node_modules/")
        if (entry.isFile() && !isNested && !removed.some(pattern => pattern.test(path))) bytes += statSync(path).size
      }
    }
    const own = 10_000_000
    const base = 180_000_000
    assert.isAbove(bytes, 10_000_000)
    assert.isBelow(bytes + own + base, 250_000_000)
  })
})

const hasSystemd = isRunnable("systemd-analyze", "--version")

describe("The systemd unit", () => {
  const unit = read("causeway.service")
  const valuesOf = (name: string) =>
    [...unit.matchAll(new RegExp(`^${name}=(.*)$`, "gm"))].map(([, value = ""]) => value)

  test.effect("configures the service, keeps its data, and gives it time to end", function* () {
    const variables = Object.fromEntries(valuesOf("Environment").map(pair => pair.split("=") as [string, string]))
    const { connectionLimits, shutdownTimeout, store } = yield* configurationOf({
      ...variables,
      KV_API_KEY: "sesame"
    })
    assert.strictEqual(store.directory, `/var/lib/${valuesOf("StateDirectory")[0]}`)
    assert.isAbove(Number(valuesOf("TimeoutStopSec")[0]), Duration.toSeconds(shutdownTimeout))
    assert.isAbove(Number(valuesOf("LimitNOFILE")[0]), connectionLimits.connections)
    assert.match(valuesOf("ExecStart")[0] ?? "", /^\/usr\/bin\/node \S+\/causewayd\/dist\/main\.js serve$/)
  })

  it.skipIf(!hasSystemd)(`is valid and exposes little${hasSystemd ? "" : ", skipped: no systemd"}`, () => {
    const directory = mkdtempSync(join(tmpdir(), "causeway-unit-"))
    try {
      const file = join(directory, "causeway.service")
      writeFileSync(file, unit.replace("/usr/bin/node", process.execPath))
      const verified = spawnSync("systemd-analyze", ["verify", "--man=no", "--recursive-errors=no", file])
      assert.deepStrictEqual([verified.status, String(verified.stderr)], [0, ""])
      // Tenths, of 10 for a unit without any restriction.
      execFileSync("systemd-analyze", ["security", "--offline=true", "--threshold=20", file], { stdio: "ignore" })
    } finally {
      rmSync(directory, { recursive: true })
    }
  })
})

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string }
}

interface Container {
  readonly ports: ReadonlyArray<{ readonly name: string; readonly containerPort: number }>
  readonly env: ReadonlyArray<{
    readonly name: string
    readonly value?: string
    readonly valueFrom?: { readonly secretKeyRef?: { readonly key: string; readonly optional?: boolean } }
  }>
  readonly startupProbe: Probe
  readonly livenessProbe: Probe
  readonly readinessProbe: Probe
  readonly lifecycle: { readonly preStop: { readonly sleep: { readonly seconds: number } } }
  readonly securityContext: object
  readonly volumeMounts: ReadonlyArray<{ readonly name: string; readonly mountPath: string }>
}

interface Resource {
  readonly kind: string
  readonly spec: {
    readonly replicas: number
    readonly selector: { readonly matchLabels: object }
    readonly volumeClaimTemplates?: ReadonlyArray<{ readonly metadata: { readonly name: string } }>
    readonly template: {
      readonly metadata: { readonly labels: object }
      readonly spec: {
        readonly terminationGracePeriodSeconds: number
        readonly securityContext: object
        readonly containers: readonly [Container]
        readonly volumes: ReadonlyArray<{ readonly name: string }>
      }
    }
  }
}

const secrets: Variables = {
  KV_API_KEY: "sesame",
  NODE_SECRET: "f".repeat(64),
  STORE_URL: "postgres://causeway:0a1b2c@postgres:5432/causeway"
}

const healthPaths: ReadonlyArray<string> = Object.values(HealthGroup.endpoints).map(({ path }) => path)

/** The probe whose status reports the state of the store, by test/suites/Http/Outage.ts. */
const readyPath = "/api/v1/ready?strict=1"

describe("The examples for Kubernetes", () => {
  for (const [file, kind] of [
    ["kubernetes.yaml", "StatefulSet"],
    ["kubernetes-postgresql.yaml", "Deployment"]
  ] as const) {
    test.effect(`${file} configures the service, and agrees with its routes, times and the image`, function* () {
      const text = read(file)
      const documents = parseAllDocuments(text)
      assert.deepStrictEqual(
        documents.flatMap(({ errors }) => errors),
        []
      )
      const resources: ReadonlyArray<Resource> = documents.map(document => document.toJS())
      const { spec } = resources.find(resource => resource.kind === kind) ?? assert.fail(`There is no ${kind}`)
      const { containers, securityContext, terminationGracePeriodSeconds, volumes } = spec.template.spec
      const [container] = containers
      assert.deepStrictEqual(spec.selector.matchLabels, spec.template.metadata.labels)

      const references = container.env.flatMap(({ valueFrom }) =>
        valueFrom?.secretKeyRef === undefined ? [] : [valueFrom.secretKeyRef]
      )
      const required = references.filter(({ optional }) => optional !== true).map(({ key }) => key)
      // A key is no argument of a program, as all users of the machine can see those.
      assert.notInclude(text, "--from-literal")
      const commands = text.slice(0, text.indexOf("\napiVersion:"))
      const instructed = [...commands.matchAll(/([A-Z_]+)=(?:%s|postgres:)/g)].map(([, name]) => name)
      assert.sameMembers(required, instructed)
      const variables = Object.fromEntries(
        container.env.map(({ name, value }) => [
          name,
          value?.replace("$(POD_IP)", "10.0.0.7") ?? (required.includes(name) ? (secrets[name] ?? "") : "")
        ])
      )
      const { address, gateway, shutdownTimeout, store } = yield* configurationOf(variables)
      assert.strictEqual(address.host, "0.0.0.0")
      assert.strictEqual(container.ports.find(({ name }) => name === "http")?.containerPort, address.port)
      assert.strictEqual(Option.isSome(store.postgres), kind === "Deployment")
      assert.strictEqual(Option.isSome(gateway.nodes), spec.replicas > 1)
      if (spec.replicas > 1) assert.strictEqual(variables.NODE_ADDRESS, `10.0.0.7:${container.ports[1]?.containerPort}`)

      for (const { httpGet } of [container.startupProbe, container.livenessProbe, container.readinessProbe]) {
        assert.include(healthPaths, httpGet.path.replace("?strict=1", ""))
        assert.strictEqual(httpGet.port, "http")
      }
      // One of several instances gets no requests while it cannot reach the database.
      assert.strictEqual(container.readinessProbe.httpGet.path === readyPath, kind === "Deployment")
      assert.isAbove(
        terminationGracePeriodSeconds,
        container.lifecycle.preStop.sleep.seconds + Duration.toSeconds(shutdownTimeout)
      )
      assert.deepInclude(securityContext, { runAsNonRoot: true, runAsUser: user, fsGroup: user })
      assert.deepInclude(container.securityContext, {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] }
      })
      const claims = spec.volumeClaimTemplates ?? []
      assert.strictEqual(claims.length > 0, kind === "StatefulSet")
      assert.sameMembers(
        container.volumeMounts.map(({ name }) => name),
        [...volumes.map(({ name }) => name), ...claims.map(({ metadata }) => metadata.name)]
      )
      assert.include(
        container.volumeMounts.map(({ mountPath }) => mountPath),
        store.directory
      )
    })
  }
})
