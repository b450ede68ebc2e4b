/** The servers that are compared, and how each is started. */
import { existsSync } from "node:fs"
import { delimiter, join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import { Plan } from "./Plan.ts"

/** A command that starts a server. */
export interface Command {
  readonly file: string
  readonly args: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
}

/** A server that can be measured. */
export interface Contender {
  readonly name: string
  /** A path that is answered 2xx when the server is up. */
  readonly probe: string
  readonly command: (directory: string, port: number) => Effect.Effect<Command, never, Plan>
  /** Whether requests have the credential; etcd would treat any credential as its own. */
  readonly takesKey: boolean
  /** Why it cannot be started; absent if it can. */
  readonly absence?: string
}

/** The credential of all servers under test. */
export const key = "bench-key"

const inherited = { PATH: process.env.PATH ?? "", NODE_ENV: "production" }

/**
 * A compiled service in production mode: its file and the node that runs it, by default this plan's and this process's.
 */
const service = (name: string, file?: string, node = process.execPath): Contender => ({
  name,
  probe: "/api/v1/changes?limit=1",
  takesKey: true,
  command: (directory, port) =>
    Effect.map(Plan, plan => ({
      file: node,
      args: [
        ...(plan.profiles === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${plan.profiles}`]),
        file ?? plan.service
      ],
      env: {
        ...inherited,
        KV_API_KEY: key,
        HOST: "127.0.0.1",
        PORT: String(port),
        DATA_DIR: directory,
        LOG_LEVEL: "warning"
      }
    }))
})

/** The compiled service of the plan. */
export const causeway: Contender = service("causeway")

/** A build of the service, to be compared with others. */
export const build = (name: string, file: string, node: string | undefined): Contender => service(name, file, node)

const peer = (name: string, script: string, probe: string): Contender => ({
  name,
  probe,
  takesKey: true,
  command: (directory, port) =>
    Effect.succeed({
      file: process.execPath,
      args: ["--import", "tsx", fileURLToPath(new URL(`./peers/${script}`, import.meta.url))],
      env: { ...inherited, KV_API_KEY: key, PORT: String(port), DATA_DIR: directory }
    })
})

/** fastify and better-sqlite3. */
export const fastify = peer("fastify + SQLite", "fastify.ts", "/api/v1/changes?limit=1")

/** `node:http` with a fixed body. */
export const raw = peer("raw node:http", "raw.ts", "/")

/** `ws` alone. */
export const ws = peer("raw ws", "ws.ts", "/")

const find = (program: string): string | undefined =>
  inherited.PATH.split(delimiter)
    .map(directory => join(directory, program))
    .find(file => existsSync(file))

const isWebdisHere = find("redis-server") !== undefined && find("webdis") !== undefined

/** Redis behind webdis. Each write is on disk before it is answered. */
export const webdis: Contender = {
  ...peer("Redis + webdis", "webdis.ts", "/PING"),
  takesKey: false,
  ...(isWebdisHere ? {} : { absence: "it is not installed (Debian: redis-server and webdis)" })
}

const etcdFile = find("etcd")

/** etcd through its gateway for JSON over HTTP. */
export const etcd: Contender = {
  name: "etcd",
  probe: "/health",
  takesKey: false,
  command: (directory, port) => {
    const address = `http://127.0.0.1:${port}`
    // There are no other members, so any port will do.
    const peers = "http://127.0.0.1:0"
    return Effect.succeed({
      file: etcdFile ?? "etcd",
      args: [
        ...["--data-dir", directory, "--log-level", "error"],
        ...["--listen-client-urls", address, "--advertise-client-urls", address],
        ...[
          "--listen-peer-urls",
          peers,
          "--initial-advertise-peer-urls",
          peers,
          "--initial-cluster",
          `default=${peers}`
        ]
      ],
      env: { ...inherited }
    })
  },
  ...(etcdFile === undefined ? { absence: "etcd is not installed (Debian: etcd-server)" } : {})
}
