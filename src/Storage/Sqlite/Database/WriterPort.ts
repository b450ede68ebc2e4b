/** Sends requests to a writer, in the calling thread or in a separate one. */
import { Worker } from "node:worker_threads"
import { type Clock, Duration, Effect, Runtime, type Scope } from "effect"
import * as Threads from "../../../base/Process/Threads.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { Backoff } from "../../../base/Time/Backoff.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import type { UnavailableCause } from "./DatabaseError.ts"

/** Background work of a database, in portions of one transaction each. */
export type Task = "expire" | "trim"

/** Times are epoch milliseconds. A limit bounds the work of one transaction. */
export type Request<W> =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<W>; readonly now: number }
  /** Deletes entries that have expired at `time`, or removes records that are older. */
  | { readonly kind: Task; readonly time: number; readonly limit: number }
  /** Copies the write-ahead log into the database and truncates it, unless readers of old snapshots prevent it. */
  | { readonly kind: "checkpoint" }
  /** Asks whether the database can be written, apart from the room on the disk. */
  | { readonly kind: "probe" }
  /** Commits a transaction that changes no data, and needs of the disk what a small write needs. */
  | { readonly kind: "touch" }
  /** Opens the file that has the database's name now. All readers have been closed. */
  | { readonly kind: "reopen" }
  | { readonly kind: "close" }

/** Why one write of a group was not committed. The reason of a defect has its stack. */
export interface WriteFailure {
  readonly _tag: "Failed" | "Defect"
  readonly reason: string
}

export interface Done<O> {
  readonly _tag: "Done"
  /** For a commit, one for each write. */
  readonly outcomes: ReadonlyArray<O | WriteFailure>
  /** For a task, the number of records that it created or removed. */
  readonly count: number
  /** The newest sequence number; 0 if the database has none. */
  readonly lastSeq: number
  readonly logBytes: number
  readonly databaseId: string | undefined
  /** The epoch of the log; `""` if the database has none. */
  readonly epoch: string
}

export interface Unavailable {
  readonly _tag: "Unavailable"
  readonly cause: UnavailableCause
  readonly reason: string
}

export type Reply<O> = Done<O> | Unavailable

type Respond<O> = (reply: Reply<O>) => void

/**
 * Sends a request. There is one request of a kind at a time: a second one is answered with `Unavailable` at once, so
 * that no requests queue up for a writer that hangs. Probes are the exception: they share one answer.
 */
export type WriterPort<W, O> = (request: Request<W>, respond: Respond<O>) => void

export const unavailable = (reason: string): Unavailable => ({ _tag: "Unavailable", cause: "Error", reason })

/** A request could not be posted, or its reply could not be handled: a bug in this code. */
const defect = (error: unknown): Unavailable => ({
  _tag: "Unavailable",
  cause: "Defect",
  reason: error instanceof Error ? (error.stack ?? String(error)) : String(error)
})

/** A writer in the calling thread, which each request blocks. `onReply` is called with each reply, before `respond`. */
export const inline = <W, O>(
  make: () => { readonly handle: (request: Request<W>) => Reply<O> },
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

interface Posted<O> {
  readonly kind: string
  readonly reply: Reply<O>
}

/** The milliseconds before a thread is started again: the first time, and at most. */
const restartPauses = { first: 100, longest: 2000 }

/** A thread that lived for this many milliseconds resets them. */
const healthyMillis = 30_000

/** How long the end of the scope waits for the writer to close its file. */
const closeTimeout = Duration.seconds(3)

/** How long it then waits for the thread to end. */
const terminateTimeout = Duration.seconds(1)

/** A thread that a request starts if there is none. When it dies, its requests fail, and others for a while. */
class ThreadPort<W, O> {
  // Kinds are never removed: a map with changing entries keeps callers alive.
  private readonly callers = new Map<string, Array<Respond<O>> | undefined>()
  private readonly backoff = new Backoff(restartPauses.first, restartPauses.longest)
  private worker: Worker | undefined
  /** Why there is no thread, and until when, in monotonic milliseconds. */
  private absence = { reason: "the database is closed", until: Number.NEGATIVE_INFINITY }

  constructor(
    private readonly start: () => Worker,
    private readonly onReply: Respond<O>,
    private readonly clock: Clock.Clock,
    private readonly onLost: (reason: string) => void
  ) {}

  readonly post: WriterPort<W, O> = (request, respond) => {
    const worker = this.worker ?? this.startWorker()
    if (worker === undefined) return respond(unavailable(this.absence.reason))
    if (!this.add(request.kind, respond)) return
    try {
      worker.postMessage(request)
    } catch (error) {
      // The thread does not learn of it, so that no reply will arrive.
      this.answer(request.kind, defect(error))
    }
  }

  /** Lets the thread close its file and ends it. A thread that hangs in the kernel ends with the process. */
  readonly close: Effect.Effect<void> = Effect.suspend(() => {
    this.absence.until = Number.POSITIVE_INFINITY
    const { worker } = this
    if (worker === undefined) return Effect.void
    const closed = Effect.async<void>(resume => this.post({ kind: "close" }, () => resume(Effect.void)))
    const terminated = Effect.promise(() => worker.terminate())
    return Effect.zipRight(Supervision.within(closeTimeout, closed), Supervision.within(terminateTimeout, terminated))
  })

  private startWorker(): Worker | undefined {
    const startedAt = Monotonic.unsafeMillis(this.clock)
    if (startedAt < this.absence.until) return undefined
    let worker: Worker
    try {
      worker = this.start()
    } catch (error) {
      this.lose(`cannot be started: ${error}`)
      return undefined
    }
    let reason = "it ended"
    Threads.track(worker, "writing thread")
    worker.on("message", ({ kind, reply }: Posted<O>) => this.receive(kind, reply))
    worker.on("error", error => {
      reason = String(error)
    })
    worker.on("exit", () => {
      this.worker = undefined
      if (Monotonic.unsafeMillis(this.clock) - startedAt >= healthyMillis) this.backoff.reset()
      this.lose(`died: ${reason}`)
    })
    this.worker = worker
    return worker
  }

  private lose(what: string): void {
    const reason = `the writing thread ${what}`
    if (this.absence.until !== Number.POSITIVE_INFINITY) {
      this.absence = { reason, until: Monotonic.unsafeMillis(this.clock) + this.backoff.next() }
      this.onLost(reason)
    }
    for (const kind of [...this.callers.keys()]) this.answer(kind, unavailable(reason))
  }

  /** Returns whether the request must be sent. Otherwise it was answered, or will share an answer. */
  private add(kind: string, respond: Respond<O>): boolean {
    const others = this.callers.get(kind)
    if (others === undefined) {
      this.callers.set(kind, [respond])
      return true
    }
    if (kind === "probe" || kind === "touch") others.push(respond)
    else respond(unavailable(`the writer has not answered the last ${kind} yet`))
    return false
  }

  /** After any failure here, the caller gets an answer and the process continues. */
  private receive(kind: string, reply: Reply<O>): void {
    try {
      this.onReply(reply)
    } catch (error) {
      return this.answer(kind, defect(error))
    }
    this.answer(kind, reply)
  }

  private answer(kind: string, reply: Reply<O>): void {
    const callers = this.callers.get(kind) ?? []
    this.callers.set(kind, undefined)
    for (const respond of callers) respond(reply)
  }
}

/** Starts a thread from its source or its compiled form, whichever this file has. */
export const startThread = (entry: "WriterThread" | "CopyThread", name: string, data: object): Worker => {
  const file = import.meta.url.endsWith(".ts") ? "../Thread.dev.cjs" : `../${entry}.js`
  return new Worker(new URL(file, import.meta.url), { workerData: data, argv: [entry], execArgv: [], name })
}

/** A writer in a separate thread, which the first request starts. */
export const thread = <W, O>(
  start: () => Worker,
  onReply: Respond<O>
): Effect.Effect<WriterPort<W, O>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const runtime = yield* Effect.runtime<never>()
    const lost = Effect.logWarning("the writing thread is gone and is started again")
    const onLost = (reason: string) => Runtime.runFork(runtime)(Effect.annotateLogs(lost, { reason }))
    const current = new ThreadPort<W, O>(start, onReply, yield* Effect.clock, onLost)
    yield* Effect.addFinalizer(() => current.close)
    return current.post
  })
