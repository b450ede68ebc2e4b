/**
 * The thread that copies and verifies databases, which would keep the main thread from everything else.
 * Like that of the writer it imports no more than it needs.
 */
import { parentPort, workerData } from "node:worker_threads"
import { type CopyRequest, copy, type Progress, toCopyError } from "./Copy/Copying.ts"
import { type VerifyRequest, verify } from "./Copy/Verification.ts"

/** What a thread is started for. */
export type Task =
  | { readonly task: "copy"; readonly request: CopyRequest }
  | { readonly task: "verify"; readonly request: VerifyRequest }

const data = workerData as Task

/** Milliseconds between two messages of progress. */
const progressEvery = 100

let toldAt = 0
const onProgress = (progress: Progress): void => {
  const now = performance.now()
  if (now - toldAt < progressEvery && progress.done < progress.total) return
  toldAt = now
  parentPort?.postMessage({ progress })
}

const run = async (): Promise<void> => {
  try {
    const result = data.task === "copy" ? await copy(data.request, onProgress) : verify(data.request)
    parentPort?.postMessage({ result })
  } catch (error) {
    const { message, reason } = toCopyError(error)
    parentPort?.postMessage({ failure: { message, reason } })
  }
}

void run()
