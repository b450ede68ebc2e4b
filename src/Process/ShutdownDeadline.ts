/**
 * The end of the process, whatever hangs.
 *
 * Finalizers have limits of their own, but some waits no limit can cut: a thread that hangs in the kernel, such as in
 * a flush, the main thread itself in a call on a file, and `process.exit`, which waits for all threads. So from the
 * first signal on a thread of its own stands by and kills the process when its time is over.
 */
import { Worker } from "node:worker_threads"
import { Config, Duration, Effect, Option } from "effect"
import * as Setting from "../Setting.ts"
import * as Threads from "./Threads.ts"

/** How long the end may take, unless something else is said. */
export const defaultLimit = Duration.seconds(15)

/** How long the end may take, as a configuration variable. */
export const config: Config.Config<Duration.Duration> = Setting.optionalDuration("SHUTDOWN_TIMEOUT", {
  description: "How long the process may take to end after SIGTERM or SIGINT; then it is killed",
  shown: "15 seconds"
}).pipe(Config.map(Option.getOrElse(() => defaultLimit)))

/** So much earlier than the limit says the process is killed, so that it is gone by then. */
const margin = 500

/** A terminal and the program that runs in it may each pass on one interrupt; within this time they count as one. */
const oneSignal = 500

/** How long the end may take. */
export interface Limit {
  readonly limit: Duration.Duration
  /** Whether the log is JSON. */
  readonly isJson: boolean
}

/** The time until the process is killed, in milliseconds. */
const lastMoment = (limit: Duration.Duration): number => {
  const millis = Duration.toMillis(limit)
  return Math.max(millis - margin, millis / 2)
}

/**
 * The thread that kills the process. Neither a log that nobody reads nor a disk that hangs may keep it from that, so
 * it does not wait for its own message.
 */
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

/** Has the process killed when the limit is over, should it still be there. */
const arm = ({ isJson, limit }: Limit): void => {
  if (isArmed) return
  isArmed = true
  const millis = lastMoment(limit)
  const message = `The service has not ended within ${Duration.format(limit)} and is killed`
  // A main thread that is well can do it too, where there is no other thread to be had.
  const stand = () => setTimeout(kill, millis + 2 * margin).unref()
  try {
    const thread = new Worker(watchdog, { eval: true, execArgv: [], workerData: { isJson, message, millis } })
    thread.on("error", stand)
    thread.unref()
  } catch {
    stand()
  }
}

/** How the signals that end the service are taken. */
export interface Options extends Limit {
  /** Told of the signal that ends the process at once. */
  readonly onSecond: () => void
}

/** From the first SIGTERM or SIGINT on the process has so much time; another one ends it at once. */
export const onSignals = ({ onSecond, ...limit }: Options): void => {
  let first: number | undefined
  const onSignal = (): void => {
    const now = performance.now()
    if (first === undefined) {
      first = now
      arm(limit)
    } else if (now - first >= oneSignal) {
      // Orderly ends wait for threads, and threads may wait for the disk.
      setTimeout(kill, 200)
      onSecond()
      setImmediate(kill)
    }
  }
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, onSignal)
}

/** Requests that are served by threads of libuv's. */
const pooled: ReadonlySet<string> = new Set([
  "FSReqCallback",
  "FSReqPromise",
  "GetAddrInfoReqWrap",
  "GetNameInfoReqWrap"
])

/** What `process.exit` would have to wait for. */
const pending = (): ReadonlyArray<string> => [
  ...Threads.all(),
  ...process.getActiveResourcesInfo().filter(type => pooled.has(type))
]

/** Waits until `process.exit` will not hang, within the limit, and says so where that takes long. */
export const settled = (limit: Limit): Effect.Effect<void> =>
  Effect.gen(function* () {
    let looks = 0
    for (let waits = pending(); waits.length > 0; waits = pending()) {
      // A service that ends by itself, such as one whose start has failed, has had no signal.
      arm(limit)
      if (++looks === 50) {
        yield* Effect.annotateLogs(Effect.logWarning("The end of the process waits for calls that do not return"), {
          calls: [...new Set(waits)].join(", ")
        })
      }
      yield* Effect.sleep("20 millis")
    }
  })
