/**
 * Sends requests to a writer, in the calling thread or in a separate one.
 */
import { Worker } from "node:worker_threads"
import { Deferred, Duration, Effect, Schedule, type Scope } from "effect"
import * as Monotonic from "../../../Monotonic.ts"
import * as Threads from "../../../Process/Threads.ts"
import * as Supervision from "../../../Supervision.ts"
import {
  type Codec,
  type PackedReply,
  packRequest,
  type Reply,
  type Request,
  type Unavailable,
  unpackReply
} from "./Messages.ts"
import type { Writer } from "./Writer.ts"

type Respond<O> = (reply: Reply<O>) => void

/**
 * Sends a request. There is one request of a kind at a time: a second one is answered with `Unavailable` at once, so
 * that no requests queue up for a writer that hangs. Probes are the exception: they share one answer.
 */
export type WriterPort<W, O> = (request: Request<W>, respond: Respond<O>) => void

/** A reply without an effect on the database. */
export const unavailable = (reason: string): Unavailable => ({ _tag: "Unavailable", cause: "Error", reason })

/** A request could not be packed or posted, or its reply could not be handled: a bug in this code. */
const defect = (error: unknown): Unavailable => ({
  _tag: "Unavailable",
  cause: "Defect",
  reason: error instanceof Error ? (error.stack ?? String(error)) : String(error)
})

/** A writer in the calling thread, which each request blocks. `onReply` is called with each reply, before `respond`. */
export const inline = <W, O>(
  make: () => Writer<W, O>,
  onReply: Respond<O>
): Effect.Effect<WriterPort<W, O>, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(Effect.sync(make), writer => Effect.sync(() => writer.handle({ kind: "close" }))),
    writer => (request, respond) => {
      const reply = writer.handle(request)
      onReply(reply)
      respond(reply)
    }
  )

/** What a thread posts. */
interface Posted<O> {
  readonly kind: string
  readonly reply: PackedReply<O>
}

/** The requests that were sent to a thread, and their callers. */
class Outstanding<O> {
  // Kinds are never removed: a map with changing entries keeps callers alive.
  private readonly callers = new Map<string, Array<Respond<O>> | undefined>()

  /** Returns whether the request must be sent. Otherwise it was answered, or will share an answer. */
  add(kind: string, respond: Respond<O>): boolean {
    const others = this.callers.get(kind)
    if (others === undefined) {
      this.callers.set(kind, [respond])
      return true
    }
    if (kind === "probe" || kind === "touch") others.push(respond)
    else respond(unavailable(`the writer has not answered the last ${kind} yet`))
    return false
  }

  answer(kind: string, reply: Reply<O>): void {
    const callers = this.callers.get(kind) ?? []
    this.callers.set(kind, undefined)
    for (const respond of callers) respond(reply)
  }

  answerAll(reply: Unavailable): void {
    for (const kind of [...this.callers.keys()]) this.answer(kind, reply)
  }
}

const starting = "the writing thread is being started"

/** The thread that runs, if one does, and the requests that were sent to it. Without a thread all are refused. */
class CurrentThread<W, O> {
  private readonly outstanding = new Outstanding<O>()
  private worker: Worker | undefined
  private absenceReason = starting

  constructor(
    private readonly start: () => Worker,
    private readonly onReply: Respond<O>,
    private readonly codec: Codec<W, O>
  ) {}

  /** Starts a thread and waits until it dies. Fails with the reason, also if the thread cannot be started. */
  readonly run: Effect.Effect<never, string> = Effect.async(resume => {
    let worker: Worker
    try {
      worker = this.start()
    } catch (error) {
      this.absenceReason = `the writing thread cannot be started: ${error}`
      return resume(Effect.fail(this.absenceReason))
    }
    let reason = "it ended"
    Threads.track(worker, "writing thread")
    worker.on("message", (posted: Posted<O>) => this.answer(posted))
    worker.on("error", error => {
      reason = String(error)
    })
    worker.on("exit", () => {
      this.worker = undefined
      this.outstanding.answerAll(unavailable(`the writing thread died: ${reason}`))
      resume(Effect.fail(reason))
    })
    this.worker = worker
    this.absenceReason = starting
  })

  readonly post: WriterPort<W, O> = (request, respond) => {
    if (this.worker === undefined) return respond(unavailable(this.absenceReason))
    if (!this.outstanding.add(request.kind, respond)) return
    try {
      this.worker.postMessage(packRequest(this.codec, request))
    } catch (error) {
      // The thread does not learn of it, so that no reply will arrive.
      this.outstanding.answer(request.kind, defect(error))
    }
  }

  readonly terminate: Effect.Effect<unknown> = Effect.promise(async () => this.worker?.terminate())

  /** After any failure here, the caller gets an answer and the process continues. */
  private answer({ kind, reply: packed }: Posted<O>): void {
    let reply: Reply<O>
    try {
      reply = unpackReply(this.codec, packed)
      this.onReply(reply)
    } catch (error) {
      reply = defect(error)
    }
    this.outstanding.answer(kind, reply)
  }
}

/** The delays before a thread is restarted: from 100 ms, doubled each time, up to 2 s. */
const restartDelays = Schedule.exponential(Duration.millis(100)).pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(2)))
)

/** The delays are reset after a thread that lived for this many milliseconds. */
const healthyMillis = 30_000

/** How long the end of the scope waits for the writer to close its file. */
const closeTimeout = Duration.seconds(3)

/** How long it then waits for the thread to end. */
const terminateTimeout = Duration.seconds(1)

/** Starts the thread from its source or its compiled form, whichever this file has. */
export const startThread = (data: { readonly file: string }): Worker => {
  const entry = import.meta.url.endsWith(".ts") ? "../WriterThread.dev.cjs" : "../WriterThread.js"
  return new Worker(new URL(entry, import.meta.url), { workerData: data, execArgv: [], name: "sqlite-writer" })
}

/**
 * A writer in a separate thread. When the thread dies, the requests in flight fail, and another thread is started, with
 * retries. Until there is a thread, all requests are refused.
 */
export const thread = <W, O>(
  start: () => Worker,
  onReply: Respond<O>,
  codec: Codec<W, O>
): Effect.Effect<WriterPort<W, O>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const started = yield* Deferred.make<void>()
    const current = new CurrentThread(start, onReply, codec)
    let startedAt = 0
    let isClosing = false

    const supervisor = yield* Effect.suspend(() => {
      startedAt = Monotonic.unsafeMillis(clock)
      Deferred.unsafeDone(started, Effect.void)
      return current.run
    }).pipe(
      Effect.tapError(reason =>
        isClosing
          ? Effect.void
          : Effect.logWarning("the writing thread is gone and is started again").pipe(Effect.annotateLogs({ reason }))
      ),
      Effect.retry({
        schedule: Schedule.resetWhen(restartDelays, () => Monotonic.unsafeMillis(clock) - startedAt >= healthyMillis),
        while: () => !isClosing
      }),
      Effect.interruptible,
      Effect.forkScoped
    )
    // If the scope is already closed, the fiber ends before it starts.
    supervisor.addObserver(() => Deferred.unsafeDone(started, Effect.void))
    yield* Deferred.await(started)

    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        isClosing = true
        // A thread that hangs in the kernel can neither answer nor end. The end of the process ends it.
        const closed = Effect.async<void>(resume => current.post({ kind: "close" }, () => resume(Effect.void)))
        yield* Supervision.within(closeTimeout, closed)
        yield* Supervision.within(terminateTimeout, current.terminate)
      })
    )
    return current.post
  })
