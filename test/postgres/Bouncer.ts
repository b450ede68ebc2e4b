/** PgBouncer in transaction mode before a server: each transaction of a client may run on another connection. */
import { spawn } from "node:child_process"
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { freePort, owner } from "./Server.ts"

const program = [...(process.env.PATH ?? "").split(":"), "/usr/sbin"]
  .map(directory => join(directory, "pgbouncer"))
  .find(path => existsSync(path))

/** Why tests that need it are skipped, if they are. */
export const reasonToSkip: string | undefined =
  program === undefined ? "skipped: no PgBouncer on this machine (apt-get install pgbouncer)" : undefined

const accepts = (port: number): Promise<boolean> =>
  new Promise(resolve => {
    const socket = connect(port, "127.0.0.1")
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false))
    socket.once("connect", () => socket.destroy())
  })

/** The address of a database through PgBouncer, until the scope closes. It takes so many clients at a time. */
export const make = (url: string, maxClients = 100): Effect.Effect<string, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const target = new URL(url)
        const port = await freePort()
        const directory = mkdtempSync(join(tmpdir(), "causeway-pgbouncer-"))
        const file = join(directory, "pgbouncer.ini")
        writeFileSync(
          file,
          `[databases]
* = host=127.0.0.1 port=${target.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = ${maxClients}
`
        )
        chmodSync(directory, 0o755)
        // It does not run as root either.
        const child = spawn(program!, ["-q", file], { stdio: "ignore", cwd: "/", ...owner })
        while (!(await accepts(port))) {
          if (child.exitCode !== null) throw new Error(`PgBouncer ended with ${child.exitCode}`)
          await new Promise(resolve => setTimeout(resolve, 20))
        }
        target.port = String(port)
        return { url: target.href, child, directory }
      }),
      ({ child, directory }) =>
        Effect.promise(async () => {
          const ended = new Promise(resolve => child.once("exit", resolve))
          child.kill("SIGKILL")
          await ended
          rmSync(directory, { recursive: true, force: true })
        })
    ),
    ({ url }) => url
  )
