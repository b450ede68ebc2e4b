/**
 * The process's threads that may hang in the kernel: `process.exit` waits for each of them, without a limit.
 */
import type { Worker } from "node:worker_threads"

const running = new Map<Worker, string>()

/** Notes a thread until it has ended. */
export const track = (thread: Worker, name: string): void => {
  running.set(thread, name)
  thread.once("exit", () => running.delete(thread))
}

/** The names of the threads that run. */
export const all = (): ReadonlyArray<string> => [...running.values()]
