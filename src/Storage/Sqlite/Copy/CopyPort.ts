/**
 * Copies and verifies databases, in a thread or in the calling one.
 */
import { Worker } from "node:worker_threads"
import { Duration, Effect, Schema } from "effect"
import * as Threads from "../../../base/Process/Threads.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { type Copied, type CopyRequest, copy as copyHere, type Progress } from "./Copying.ts"
import { type CopyError, type FailureReason, toCopyError, type Verified, type VerifyRequest } from "./Verification.ts"

/** A copy or a verification has failed. */
export class CopyFailed extends Schema.TaggedError<CopyFailed>()("CopyFailed", {
  reason: Schema.Literal("Refused", "NoRoom", "LogTooLarge", "Failed"),
  /** A sentence without its full stop. */
  message: Schema.String
}) {}

/** Called after each step of a copy. */
export type OnProgress = (progress: Progress) => void

const failed = ({ message, reason }: CopyError): CopyFailed => new CopyFailed({ message, reason })

type Posted<A> =
  | { readonly progress: Progress }
  | { readonly result: A }
  | { readonly failure: { readonly message: string; readonly reason: FailureReason } }

/**
 * How long an interruption waits for the end of a thread. A thread that reads a large database ends when it has read
 * it.
 */
const endTimeout = Duration.seconds(1)

/** Starts a thread from its source or its compiled form, whichever this file has. */
const start = (data: object): Worker => {
  const entry = import.meta.url.endsWith(".ts") ? "../Thread.dev.cjs" : "../CopyThread.js"
  return new Worker(new URL(entry, import.meta.url), {
    workerData: data,
    argv: ["CopyThread"],
    execArgv: [],
    name: "sqlite-copy"
  })
}

/** Runs a thread to its end. An interruption ends the thread first, within a timeout. */
const runThread = <A>(data: object, onProgress: OnProgress): Effect.Effect<A, CopyFailed> =>
  Effect.async<A, CopyFailed>(resume => {
    const fail = (message: string): void => resume(new CopyFailed({ reason: "Failed", message }))
    let worker: Worker
    try {
      worker = start(data)
    } catch (error) {
      fail(`The thread cannot be started: ${error}`)
      return
    }
    Threads.track(worker, "copying thread")
    worker.on("message", (posted: Posted<A>) => {
      if ("progress" in posted) onProgress(posted.progress)
      else if ("result" in posted) resume(Effect.succeed(posted.result))
      else resume(new CopyFailed(posted.failure))
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
): Effect.Effect<ReadonlyArray<Copied>, CopyFailed> => runThread({ task: "copy", request }, onProgress)

/**
 * Copies databases in the calling thread, in steps with other work in between. An interruption waits for the end of the
 * step.
 */
export const copyInline = (request: CopyRequest): Effect.Effect<ReadonlyArray<Copied>, CopyFailed> =>
  Effect.async((resume, signal) => {
    const copying = copyHere(request, () => signal.throwIfAborted()).then(
      copies => resume(Effect.succeed(copies)),
      error => resume(Effect.fail(failed(toCopyError(error))))
    )
    return Effect.promise(() => copying)
  })

/** Verifies a database in a thread. */
export const verify = (request: VerifyRequest): Effect.Effect<Verified, CopyFailed> =>
  runThread({ task: "verify", request }, () => {})
