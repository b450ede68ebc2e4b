/** The thread that copies and verifies databases. Like the writer's thread it imports no more than it needs. */
import { parentPort, workerData } from "node:worker_threads"
import { type CopyRequest, copy, type Progress } from "./Copy/Copying.ts"
import { toCopyError, type VerifyRequest, verify } from "./Copy/Verification.ts"

export type Task =
  | { readonly task: "copy"; readonly request: CopyRequest }
  | { readonly task: "verify"; readonly request: VerifyRequest }

const data = workerData as Task

const progressIntervalMillis = 100

let reportedAt = 0
const onProgress = (progress: Progress): void => {
  const now = performance.now()
  if (now - reportedAt < progressIntervalMillis && progress.done < progress.total) return
  reportedAt = now
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
