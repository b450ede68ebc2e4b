/** Copies and verifies databases, in a thread or in the calling one. */
import type { Worker } from "node:worker_threads"
import { Duration, Effect } from "effect"
import * as Threads from "../../../base/Process/Threads.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { startThread } from "../Database/WriterPort.ts"
import { type Copied, type CopyRequest, copy as copyHere, type Progress } from "./Copying.ts"
import { CopyError, type FailureReason, toCopyError, type Verified, type VerifyRequest } from "./Verification.ts"

export type OnProgress = (progress: Progress) => void

type Posted<A> =
  | { readonly progress: Progress }
  | { readonly result: A }
  | { readonly failure: Pick<CopyError, "message" | "reason"> }

/** How long an interruption waits for a thread, which ends when it has read its database. */
const endTimeout = Duration.seconds(1)

const runThread = <A>(data: object, onProgress: OnProgress): Effect.Effect<A, CopyError> =>
  Effect.async<A, CopyError>(resume => {
    const fail = (message: string, reason: FailureReason = "Failed"): void =>
      resume(Effect.fail(new CopyError(reason, message)))
    let worker: Worker
    try {
      worker = startThread("CopyThread", "sqlite-copy", data)
    } catch (error) {
      fail(`The thread cannot be started: ${error}`)
      return
    }
    Threads.track(worker, "copying thread")
    worker.on("message", (posted: Posted<A>) => {
      if ("progress" in posted) onProgress(posted.progress)
      else if ("result" in posted) resume(Effect.succeed(posted.result))
      else fail(posted.failure.message, posted.failure.reason)
    })
    worker.on("error", error => fail(`The thread died: ${error}`))
    worker.on("exit", () => fail("The thread died"))
    return Effect.asVoid(
      Supervision.within(
        endTimeout,
        Effect.promise(() => worker.terminate())
      )
    )
  })

/** Copies databases in a thread; see {@link copyHere}. */
export const copy = (
  request: CopyRequest,
  onProgress: OnProgress = () => {}
): Effect.Effect<ReadonlyArray<Copied>, CopyError> => runThread({ task: "copy", request }, onProgress)

/** Copies databases in the calling thread, with other work in between. An interruption waits for a step. */
export const copyInline = (request: CopyRequest): Effect.Effect<ReadonlyArray<Copied>, CopyError> =>
  Effect.async((resume, signal) => {
    const copying = copyHere(request, () => signal.throwIfAborted()).then(
      copies => resume(Effect.succeed(copies)),
      error => resume(Effect.fail(toCopyError(error)))
    )
    return Effect.promise(() => copying)
  })

export const verify = (request: VerifyRequest): Effect.Effect<Verified, CopyError> =>
  runThread({ task: "verify", request }, () => {})
