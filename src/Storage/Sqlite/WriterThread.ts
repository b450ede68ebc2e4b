/**
 * The writing thread: it commits and flushes while the main thread serves reads.
 * What it imports costs each start time and memory; the barrel of effect alone would be 40 MB.
 */
import { parentPort, workerData } from "node:worker_threads"
import type { Kind, Reply, Request } from "./Messages.ts"
import { Writer } from "./Writer.ts"

/** What the thread is started with. */
export interface ThreadData {
  /** The database file. */
  readonly file: string
}

/** A reply as it comes back, with what it replies to. */
export interface Posted {
  readonly kind: Kind
  readonly reply: Reply
}

const writer = new Writer((workerData as ThreadData).file)

parentPort?.on("message", (request: Request) => {
  const posted: Posted = { kind: request.kind, reply: writer.handle(request) }
  parentPort?.postMessage(posted)
})
