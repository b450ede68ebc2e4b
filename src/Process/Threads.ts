/**
 * Threads that may block in a system call. `process.exit` waits for each of them without a limit.
 */
import type { Worker } from "node:worker_threads"

const running = new Map<Worker, string>()

/** Tracks a thread until it ends. */
export const track = (thread: Worker, name: string): void => {
  running.set(thread, name)
  thread.once("exit", () => running.delete(thread))
}

/** The names of the running threads. */
export const all = (): ReadonlyArray<string> => [...running.values()]
