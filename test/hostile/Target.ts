/** A service as a process of its own, to be attacked, and what its memory comes to. */
import { fork } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { Effect } from "effect"
import { launch } from "../ServerProcess.ts"
import type { Order } from "./Program.ts"

const MiB = 1024 * 1024

/** What waits for clients may come to, in the service under attack. */
export const unsentBytes = 64 * MiB

/** Connections that the service under attack takes. */
export const connections = 300

/** The service under attack. */
export interface Target {
  readonly port: number
  readonly url: string
  /** The most memory that was resident since {@link Target.forgetPeak}, in MiB. */
  readonly peak: () => number
  readonly forgetPeak: () => void
  readonly isAlive: () => boolean
}

/** Starts a service in dev mode, which has a simulated platform behind it. */
export const start = Effect.gen(function* () {
  const service = yield* launch({
    DEV_MODE: "true",
    LOG_LEVEL: "error",
    LIMIT_TOTAL_UNSENT_BYTES: String(unsentBytes),
    LIMIT_HTTP_CONNECTIONS: String(connections)
  })
  const [, port] = yield* service.shows(/dev mode, at http:\/\/127\.0\.0\.1:(\d+)/)
  const status = (field: string): number => {
    const text = readFileSync(`/proc/${service.pid}/status`, "utf8")
    return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(text)?.[1]) / 1024
  }
  const target: Target = {
    port: Number(port),
    url: `http://127.0.0.1:${port}`,
    peak: () => status("VmHWM"),
    // `proc_pid_clear_refs(5)`: 5 sets the peak to what is resident now.
    forgetPeak: () => writeFileSync(`/proc/${service.pid}/clear_refs`, "5"),
    isAlive: () => {
      try {
        process.kill(service.pid, 0)
        return true
      } catch {
        return false
      }
    }
  }
  return target
})

/** Starts the hostile clients' process; it ends with the scope. Orders are carried out one after the other. */
export const enemy = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => fork(new URL("Program.ts", import.meta.url), { execArgv: ["--import", "tsx"] })),
    child => Effect.sync(() => child.kill("SIGKILL"))
  ),
  child => (order: Order) =>
    new Promise<void>((resolve, reject) => {
      child.once("exit", reject)
      child.once("message", () => {
        child.off("exit", reject)
        resolve()
      })
      child.send(order)
    })
)
