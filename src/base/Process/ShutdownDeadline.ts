/**
 * The deadline of shutdown, after which the process is killed.
 *
 * Finalizers have timeouts, but some waits cannot be interrupted: a thread that blocks in a system call, such as a
 * flush, the main thread itself in a file operation, and `process.exit`, which waits for all threads. So the first
 * signal starts a watchdog thread that kills the process at the deadline.
 */
import { Worker } from "node:worker_threads"
import { Config, Duration, Effect, Option } from "effect"
import * as Setting from "../Setting.ts"
import * as Threads from "./Threads.ts"

/** The default time for shutdown. */
export const defaultLimit = Duration.seconds(15)

export const config: Config.Config<Duration.Duration> = Setting.optionalDuration("SHUTDOWN_TIMEOUT", {
  description: "How long the process may take to end after SIGTERM or SIGINT; then it is killed",
  shown: "15 seconds"
}).pipe(Config.map(Option.getOrElse(() => defaultLimit)))

/** Milliseconds before the limit at which the process is killed, so that it has ended by then. */
const margin = 500

/** Milliseconds within which signals count as one: a terminal and a parent process may both pass on an interrupt. */
const oneSignal = 500

/** The time for shutdown. */
export interface Limit {
  readonly limit: Duration.Duration
  readonly isJson: boolean
}

/** Milliseconds until the process is killed. */
const lastMoment = (limit: Duration.Duration): number => {
  const millis = Duration.toMillis(limit)
  return Math.max(millis - margin, millis / 2)
}

/** The watchdog thread. It does not wait for its log line because standard output may block. */
const watchdog = `
const { workerData } = require("node:worker_threads")
const { write } = require("node:fs")
const kill = () => process.kill(process.pid, "SIGKILL")
setTimeout(() => {
  setTimeout(kill, 200)
  const { message, isJson } = workerData
  const timestamp = new Date().toISOString()
  const line = isJson ? JSON.stringify({ level: "ERROR", message, timestamp, fiber: "#0" }) : timestamp + " ERROR " + message
  write(1, line + "\\n", kill)
}, workerData.millis)
`

const kill = (): void => void process.kill(process.pid, "SIGKILL")

let isArmed = false

/** Starts the watchdog. */
const arm = ({ isJson, limit }: Limit): void => {
  if (isArmed) return
  isArmed = true
  const millis = lastMoment(limit)
  const message = `The service has not ended within ${Duration.format(limit)} and is killed`
  // The fallback if no thread can be started.
  const killLater = () => setTimeout(kill, millis + 2 * margin).unref()
  try {
    const thread = new Worker(watchdog, { eval: true, execArgv: [], workerData: { isJson, message, millis } })
    thread.on("error", killLater)
    thread.unref()
  } catch {
    killLater()
  }
}

export interface Options extends Limit {
  /** Called at the second signal, which ends the process at once. */
  readonly onSecond: () => void
}

/** The first SIGTERM or SIGINT starts the deadline; a second one ends the process at once. */
export const onSignals = ({ onSecond, ...limit }: Options): void => {
  let first: number | undefined
  const onSignal = (): void => {
    const now = performance.now()
    if (first === undefined) {
      first = now
      arm(limit)
    } else if (now - first >= oneSignal) {
      // `process.exit` would wait for threads, which may block.
      setTimeout(kill, 200)
      onSecond()
      setImmediate(kill)
    }
  }
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, onSignal)
}

/** Waits until `process.exit` will not block, within the deadline, and logs a warning if that takes long. */
export const settled = (limit: Limit): Effect.Effect<void> =>
  Effect.gen(function* () {
    let checks = 0
    for (let waits = Threads.pending(); waits.length > 0; waits = Threads.pending()) {
      // A service that ends by itself, such as after a failed start, has had no signal.
      arm(limit)
      if (++checks === 50) {
        yield* Effect.annotateLogs(Effect.logWarning("The end of the process waits for calls that do not return"), {
          calls: [...new Set(waits)].join(", ")
        })
      }
      yield* Effect.sleep("20 millis")
    }
  })
