/**
 * Threads that may block in a system call: those of this process, and those of libuv's pool. `process.exit` waits for
 * each of them without a limit.
 */
import type { Worker } from "node:worker_threads"

const running = new Map<Worker, string>()

/** Tracks a thread until it ends. */
export const track = (thread: Worker, name: string): void => {
  running.set(thread, name)
  thread.once("exit", () => running.delete(thread))
}

/** Requests that run in libuv's pool. */
const pooled: ReadonlySet<string> = new Set([
  "FSReqCallback",
  "FSReqPromise",
  "GetAddrInfoReqWrap",
  "GetNameInfoReqWrap"
])

/** What `process.exit` would wait for: the names of running threads, and the types of requests in the pool. */
export const pending = (): ReadonlyArray<string> => [
  ...running.values(),
  ...process.getActiveResourcesInfo().filter(type => pooled.has(type))
]
