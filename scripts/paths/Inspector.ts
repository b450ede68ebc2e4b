/** The files of a process with functions that run, by V8's precise coverage over the Chrome DevTools Protocol. */
import { Effect, Schema, type Scope } from "effect"
import { WebSocket } from "ws"

/** A request to the inspector failed. */
export class InspectorFailed extends Schema.TaggedError<InspectorFailed>()("InspectorFailed", {
  reason: Schema.String
}) {
  override get message(): string {
    return `The inspector: ${this.reason}`
  }
}

const Message = Schema.parseJson(
  Schema.Struct({
    id: Schema.optional(Schema.Int),
    result: Schema.optional(Schema.Unknown),
    error: Schema.optional(Schema.Struct({ message: Schema.String })),
    method: Schema.optional(Schema.String),
    params: Schema.optional(Schema.Unknown)
  })
)
const Attached = Schema.Struct({ sessionId: Schema.String })
const FromWorker = Schema.Struct({ sessionId: Schema.String, message: Schema.String })
const Taken = Schema.Struct({
  result: Schema.Array(
    Schema.Struct({
      url: Schema.String,
      functions: Schema.Array(Schema.Struct({ ranges: Schema.Array(Schema.Struct({ count: Schema.Int })) }))
    })
  )
})

/** The protocol with one thread. */
class Session {
  private readonly waiting = new Map<number, (answer: Effect.Effect<unknown, InspectorFailed>) => void>()
  private lastId = 0

  constructor(
    private readonly send: (text: string) => void,
    private readonly onEvent: (method: string, params: unknown) => void = () => {}
  ) {}

  call(method: string, params: object = {}): Effect.Effect<unknown, InspectorFailed> {
    return Effect.async(resume => {
      const id = ++this.lastId
      this.waiting.set(id, resume)
      this.send(JSON.stringify({ id, method, params }))
    })
  }

  receive(text: string): void {
    const { id, result, error, method, params } = Schema.decodeUnknownSync(Message)(text)
    if (id === undefined) return this.onEvent(method ?? "", params)
    this.waiting.get(id)?.(
      error === undefined ? Effect.succeed(result) : new InspectorFailed({ reason: error.message })
    )
    this.waiting.delete(id)
  }
}

/** The coverage of all threads of a process. */
export interface Coverage {
  /** The URLs of the files with a function that was called since the last call. */
  readonly take: Effect.Effect<ReadonlySet<string>, InspectorFailed>
}

const socketTo = (url: string) =>
  Effect.acquireRelease(
    Effect.async<WebSocket, InspectorFailed>(resume => {
      const socket = new WebSocket(url, { perMessageDeflate: false })
      socket.once("open", () => resume(Effect.succeed(socket)))
      socket.once("error", ({ message }) => resume(new InspectorFailed({ reason: message })))
    }),
    socket => Effect.sync(() => socket.terminate())
  )

/** Counts calls in the main thread and the existing worker threads until the scope closes. */
export const start = (url: string): Effect.Effect<Coverage, InspectorFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const socket = yield* socketTo(url)
    const workers = new Map<string, Session>()
    const main: Session = new Session(
      text => socket.send(text),
      (method, params) => {
        if (method === "NodeWorker.attachedToWorker") {
          const { sessionId } = Schema.decodeUnknownSync(Attached)(params)
          const send = (message: string) =>
            void Effect.runFork(main.call("NodeWorker.sendMessageToWorker", { sessionId, message }))
          workers.set(sessionId, new Session(send))
        } else if (method === "NodeWorker.receivedMessageFromWorker") {
          const { sessionId, message } = Schema.decodeUnknownSync(FromWorker)(params)
          workers.get(sessionId)?.receive(message)
        }
      }
    )
    socket.on("message", data => main.receive(String(data)))
    // The answer arrives when all running workers are attached.
    yield* main.call("NodeWorker.enable", { waitForDebuggerOnStart: false })
    const threads = [main, ...workers.values()]
    yield* Effect.forEach(threads, thread =>
      Effect.zipRight(
        thread.call("Profiler.enable"),
        thread.call("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
      )
    )
    const taken = (thread: Session) =>
      Effect.map(thread.call("Profiler.takePreciseCoverage"), answer =>
        Schema.decodeUnknownSync(Taken)(answer).result.flatMap(({ url, functions }) =>
          functions.some(({ ranges: [whole] }) => whole !== undefined && whole.count > 0) ? [url] : []
        )
      )
    return { take: Effect.map(Effect.forEach(threads, taken), urls => new Set(urls.flat())) }
  })
