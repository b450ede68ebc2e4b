/**
 * The thread that writes the histories of sessions.
 * What it imports costs each start time and memory; the barrel of effect alone would be 40 MB.
 */
import { parentPort, workerData } from "node:worker_threads"
import type { Retention } from "../../../Gateway/SessionEvents.ts"
import { type PackedRequest, packReply, unpackRequest } from "./Packing.ts"
import { Writer } from "./Tables.ts"

/** What the thread is started with. */
export interface ThreadData {
  /** The database file. */
  readonly file: string
  readonly retention: Retention
}

const { file, retention } = workerData as ThreadData
const writer = new Writer(file, retention)

parentPort?.on("message", (request: PackedRequest) => {
  parentPort?.postMessage({ kind: request.kind, reply: packReply(writer.handle(unpackRequest(request))) })
})
