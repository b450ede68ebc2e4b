/**
 * The thread that writes a database, so that flushes do not block the main thread. Its imports determine its start time
 * and memory: the index of effect would use 40 MB.
 */
import { parentPort, workerData } from "node:worker_threads"
import type { Retention } from "../../Gateway/SessionEvents.ts"
import { Writer, type WriterPlugin } from "./Database/Writer.ts"
import type { Request } from "./Database/WriterPort.ts"
import { writer as kvWriter } from "./Kv/Tables.ts"
import { writer as sessionWriter } from "./SessionEvents/Tables.ts"

export type ThreadData =
  | { readonly database: "kv"; readonly idempotencyBytes: number }
  | { readonly database: "sessions"; readonly retention: Retention }

const data = workerData as ThreadData & { readonly file: string }

const serve = <W, O>(plugin: WriterPlugin<W, O>): void => {
  const writer = new Writer(data.file, plugin)
  parentPort?.on("message", (request: Request<W>) => {
    parentPort?.postMessage({ kind: request.kind, reply: writer.handle(request) })
  })
}

if (data.database === "kv") serve(kvWriter(data.idempotencyBytes))
else serve(sessionWriter(data.retention))
