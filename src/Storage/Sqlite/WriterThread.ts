/**
 * The writing thread: it commits and flushes while the main thread serves reads.
 * What it imports costs each start time and memory; the barrel of effect alone would be 40 MB.
 */
import { parentPort, workerData } from "node:worker_threads"
import { Writer } from "./Database/Writer.ts"
import type { Kind } from "./Kv/Messages.ts"
import { type PackedReply, type PackedRequest, packReply, unpackRequest } from "./Kv/Packing.ts"

/** What the thread is started with. */
export interface ThreadData {
  /** The database file. */
  readonly file: string
}

/** A reply as it comes back, with what it replies to. */
export interface Posted {
  readonly kind: Kind
  readonly reply: PackedReply
}

const writer = new Writer((workerData as ThreadData).file)

parentPort?.on("message", (request: PackedRequest) => {
  const posted: Posted = { kind: request.kind, reply: packReply(writer.handle(unpackRequest(request))) }
  parentPort?.postMessage(posted)
})
