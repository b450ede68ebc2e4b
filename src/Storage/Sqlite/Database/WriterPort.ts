import { Worker } from "node:worker_threads"
import { Deferred, Duration, Effect, Schedule, type Scope } from "effect"
import * as Monotonic from "../../../Monotonic.ts"
import type { DebugLog } from "../../../Observability/DebugLog.ts"
import * as Threads from "../../../Process/Threads.ts"
import * as Supervision from "../../../Supervision.ts"
import type { Away, Close, Reply, Request } from "../Kv/Messages.ts"
import { type PackedReply, packRequest, unpackReply } from "../Kv/Packing.ts"
import type { ThreadData } from "../WriterThread.ts"
import * as CommandLog from "./CommandLog.ts"
import { hasRoom } from "./Directory.ts"
import { Writer } from "./Writer.ts"

interface Asked {
  readonly kind: string
}

type Respond<Rep> = (reply: Rep | Away) => void

/** Serves requests synchronously, in whichever thread. */
export interface Handler<Req extends Asked, Rep> {
  readonly handle: (request: Req | Close) => Rep
}

/** The way to a writer: to the store's, unless said otherwise. */
export interface WriterPort<Req extends Asked = Request, Rep = Reply> {
  /**
   * Has a request served. There is one request of a kind at a time: a second is answered with `Away` at once, so that
   * nothing piles up before a writer that hangs, except for probes, which share one answer.
   */
  readonly post: (request: Req, respond: Respond<Rep>) => void
  /** As `post`; interrupting it leaves the request under way. */
  readonly send: (request: Req) => Effect.Effect<Rep | Away>
}

/** Where to find the writer, and who hears of each reply before whoever asked. */
export interface Options {
  readonly file: string
  readonly onReply: (reply: Reply) => void
}

const away = (reason: string): Away => ({ _tag: "Away", obstacle: "failed", reason })

/** This code made what cannot be packed or posted. */
const defect = (error: unknown): Away => ({
  _tag: "Away",
  obstacle: "defect",
  reason: error instanceof Error ? (error.stack ?? String(error)) : String(error)
})

const starting = "the writing thread is being started"

const withSend = <Req extends Asked, Rep>(post: WriterPort<Req, Rep>["post"]): WriterPort<Req, Rep> => ({
  post,
  send: request => Effect.async(resume => post(request, reply => resume(Effect.succeed(reply))))
})

/**
 * A way to a writer that acknowledges nothing while `isHeld` denies that the store belongs to this process: what came
 * back then may be in the store or not. From the first denial on nothing is sent until `isHeld` says otherwise.
 */
export const guard = <Req extends Asked, Rep>(
  port: WriterPort<Req, Rep>,
  isHeld: () => boolean,
  reason: string
): WriterPort<Req, Rep> => {
  let isLost = false
  return withSend((request, respond) => {
    if (isLost && !isHeld()) return respond(away(reason))
    port.post(request, reply => {
      isLost = !isHeld()
      respond(isLost ? away(reason) : reply)
    })
  })
}

/** A way to a writer that logs what it is given and what came of it; the same one where nothing is logged. */
export const logged = <Req extends Asked, Rep extends { readonly _tag: string }>(
  port: WriterPort<Req, Rep>,
  debug: DebugLog | undefined,
  database: string,
  describe: (request: Req) => Readonly<Record<string, unknown>>
): WriterPort<Req, Rep> =>
  debug === undefined
    ? port
    : withSend((request, respond) => {
        const ended = CommandLog.command(database, debug, { command: request.kind, ...describe(request) })
        port.post(request, reply => {
          ended(reply._tag === "Done" ? "ok" : "failed")
          respond(reply)
        })
      })

/** Reads that keep the writer out while the disk is full. */
interface Alone {
  readonly isAlone: boolean
  readonly close: (reason: string) => void
}

/**
 * A way to a writer that has to itself what one connection reads alone on a full disk: it is given nothing to do until
 * there is room again, and then those reads stop until it has answered.
 */
export const afterAlone = <Req extends Asked, Rep>(
  port: WriterPort<Req, Rep>,
  reader: Alone,
  directory: string
): WriterPort<Req, Rep> =>
  withSend((request, respond) => {
    if (reader.isAlone) {
      if (!hasRoom(directory)) return respond({ _tag: "Away", obstacle: "disk", reason: "the disk is full" })
      reader.close("the database is being opened for writing")
    }
    port.post(request, respond)
  })

/** A way to a writer that says before it is given something to do, and when it has answered everything. */
export const watch = <Req extends Asked, Rep>(
  port: WriterPort<Req, Rep>,
  isBusy: (isBusy: boolean) => void
): WriterPort<Req, Rep> => {
  let unanswered = 0
  return withSend((request, respond) => {
    if (unanswered++ === 0) isBusy(true)
    port.post(request, reply => {
      if (--unanswered === 0) isBusy(false)
      respond(reply)
    })
  })
}

/** The store's writer in the calling thread, which each commit blocks. */
export const makeInline = ({ file, onReply }: Options): Effect.Effect<WriterPort, never, Scope.Scope> =>
  inline<Request, Reply>(() => new Writer(file), onReply)

/** Any writer in the calling thread. */
export const inline = <Req extends Asked, Rep>(
  make: () => Handler<Req, Rep>,
  onReply: (reply: Rep) => void
): Effect.Effect<WriterPort<Req, Rep>, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(Effect.sync(make), writer => Effect.sync(() => writer.handle({ kind: "close" }))),
    writer =>
      withSend<Req, Rep>((request, respond) => {
        const reply = writer.handle(request)
        onReply(reply)
        respond(reply)
      })
  )

/** Requests that were sent to the thread, and who waits for the answers. */
class Inbox<Rep> {
  // A kind stays once it was asked for: a map with entries that come and go keeps alive whoever asked.
  private readonly asked = new Map<string, Array<Respond<Rep>> | undefined>()

  /** Whether the request is to be sent; otherwise it has its answer, or will share one. */
  admit(kind: string, respond: Respond<Rep>): boolean {
    const others = this.asked.get(kind)
    if (others === undefined) {
      this.asked.set(kind, [respond])
      return true
    }
    if (kind === "probe") others.push(respond)
    else respond(away(`the writer has not answered the last ${kind} yet`))
    return false
  }

  answer(kind: string, reply: Rep | Away): void {
    const responds = this.asked.get(kind) ?? []
    this.asked.set(kind, undefined)
    for (const respond of responds) respond(reply)
  }

  answerAll(reply: Away): void {
    for (const kind of [...this.asked.keys()]) this.answer(kind, reply)
  }
}

/** Waits between two starts of a thread that keeps dying: from 100 ms, twice as long each time, up to 2 s. */
const restarts = Schedule.exponential("100 millis").pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(2)))
)

/** After a thread that lived for so many milliseconds the waits begin anew. */
const healthyMillis = 30_000

/** Starts the thread from the file beside this one, in whichever form that is there. */
export const startFromFile = (data: ThreadData): Worker => {
  const entry = import.meta.url.endsWith(".ts") ? "../WriterThread.dev.cjs" : "../WriterThread.js"
  return new Worker(new URL(entry, import.meta.url), { workerData: data, execArgv: [], name: "kv-writer" })
}

/** The store's writer in a thread of its own. */
export const makeThread = (
  { file, onReply }: Options,
  startThread: (data: ThreadData) => Worker = startFromFile
): Effect.Effect<WriterPort, never, Scope.Scope> =>
  thread<Request, Reply, PackedReply>(() => startThread({ file }), onReply, {
    pack: packRequest,
    unpack: unpackReply
  })

/** What requests and replies are made into on their way, and what they are made of again. */
interface Packing<Req, Rep, Packed> {
  readonly pack: (request: Req | Close) => unknown
  readonly unpack: (packed: Packed) => Rep | Away
}

/**
 * Any writer in a thread of its own. When that dies, what is in flight fails, and another is started. A thread that
 * cannot be started is tried again as well; until there is one, everything is turned away.
 */
export const thread = <Req extends Asked, Rep, Packed>(
  startThread: () => Worker,
  onReply: (reply: Rep | Away) => void,
  { pack, unpack }: Packing<Req, Rep, Packed>
): Effect.Effect<WriterPort<Req, Rep>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const inbox = new Inbox<Rep>()
    const started = yield* Deferred.make<void>()
    let current: Worker | undefined
    let absence = starting
    let isClosing = false
    const clock = yield* Effect.clock
    let startedAt = 0

    const life = Effect.async<never, string>(resume => {
      Deferred.unsafeDone(started, Effect.void)
      startedAt = Monotonic.unsafeMillis(clock)
      let worker: Worker
      try {
        worker = startThread()
      } catch (error) {
        absence = `the writing thread cannot be started: ${error}`
        return resume(Effect.fail(absence))
      }
      let reason = "it ended"
      Threads.track(worker, "writing thread")
      worker.on("message", (posted: { readonly kind: string; readonly reply: Packed }) => {
        // Whatever goes wrong here, whoever asked is answered, and the process goes on.
        let reply: Rep | Away
        try {
          reply = unpack(posted.reply)
          onReply(reply)
        } catch (error) {
          reply = defect(error)
        }
        inbox.answer(posted.kind, reply)
      })
      worker.on("error", error => {
        reason = String(error)
      })
      worker.on("exit", () => {
        current = undefined
        inbox.answerAll(away(`the writing thread died: ${reason}`))
        resume(Effect.fail(reason))
      })
      current = worker
      absence = starting
    })

    const lives = yield* life.pipe(
      Effect.tapError(reason =>
        isClosing
          ? Effect.void
          : Effect.logWarning("the writing thread is gone and is started again").pipe(Effect.annotateLogs({ reason }))
      ),
      Effect.retry({
        schedule: Schedule.resetWhen(restarts, () => Monotonic.unsafeMillis(clock) - startedAt >= healthyMillis),
        while: () => !isClosing
      }),
      Effect.interruptible,
      Effect.forkScoped
    )
    // Where the scope is closed by now, it ends before it begins.
    lives.addObserver(() => Deferred.unsafeDone(started, Effect.void))
    yield* Deferred.await(started)

    const post = (request: Req | Close, respond: Respond<Rep>): void => {
      if (current === undefined) return respond(away(absence))
      if (!inbox.admit(request.kind, respond)) return
      try {
        current.postMessage(pack(request))
      } catch (error) {
        // The thread never hears of it, and would leave all later requests of the kind without an answer.
        inbox.answer(request.kind, defect(error))
      }
    }

    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        isClosing = true
        // A thread that hangs in the kernel can neither answer nor end; the process's own end takes it along.
        const closed = Effect.async<void>(resume => post({ kind: "close" }, () => resume(Effect.void)))
        yield* Supervision.within("3 seconds", closed)
        yield* Supervision.within(
          "1 second",
          Effect.promise(async () => current?.terminate())
        )
      })
    )
    return withSend<Req, Rep>(post)
  })
