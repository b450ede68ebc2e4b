/** The service under attack, a process of its own, and its memory. */
import { fork } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { Effect } from "effect"
import { launch } from "../service/Command.ts"
import * as Compiled from "../service/Compiled.ts"
import type { Order } from "./Program.ts"

const MiB = 1024 * 1024

/** Limit of unsent bytes in the service under attack. */
const unsentBytes = 64 * MiB

/** Limit of connections of the service under attack. */
const connections = 300

/** The service under attack. */
export interface Target {
  readonly port: number
  readonly url: string
  /** Peak resident memory since {@link Target.forgetPeak}, in MiB. */
  readonly peak: () => number
  readonly forgetPeak: () => void
  readonly isAlive: () => boolean
}

/** Starts a service in dev mode, with a simulated platform. */
export const start = Effect.gen(function* () {
  const service = yield* launch({
    DEV_MODE: "true",
    LOG_LEVEL: "error",
    LIMIT_TOTAL_UNSENT_BYTES: String(unsentBytes),
    LIMIT_HTTP_CONNECTIONS: String(connections)
  })
  const [, port] = yield* service.shows(/dev mode, at http:\/\/127\.0\.0\.1:(\d+)\n/)
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

/** Starts the process of the hostile clients until the scope closes. It executes commands one after the other. */
export const enemy = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => fork(Compiled.program("hostile"), { execArgv: [] })),
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
