import { Effect, Option, Schema } from "effect"
import type { RawData, WebSocket } from "ws"
import { breathe } from "./Answer.ts"
import type { Frame } from "./EventHistory.ts"
import type { Delivery } from "./Fault.ts"
import type { Attached, Instance } from "./Instance.ts"
import type { Ledger } from "./Ledger.ts"
import { malformedFrames } from "./Script.ts"

/** Frames that a client may send. */
const ClientFrame = Schema.parseJson(
  Schema.Union(
    Schema.Struct({
      type: Schema.Literal("message"),
      content: Schema.String,
      turnId: Schema.optional(Schema.String)
    }),
    Schema.Struct({ type: Schema.Literal("interrupt"), turnId: Schema.optional(Schema.String) }),
    Schema.Struct({ type: Schema.Literal("answer"), requestId: Schema.String, answer: Schema.Unknown })
  )
)

const decodeFrame = Schema.decodeUnknownEither(ClientFrame)

/** Above so many bytes in the socket's own buffer, sending waits. */
const highWater = 256 * 1024

/** So many frames are sent before everything else gets its turn. */
const burst = 64

/** What a connection has sent, for its instance to see. */
class Progress implements Attached {
  sent: number

  constructor(
    private readonly socket: WebSocket,
    private readonly instance: Instance,
    after: number
  ) {
    this.sent = after
  }

  close(code: number | undefined, reason = ""): void {
    // Nobody waits for a connection that is on its way out.
    this.instance.detach(this)
    if (code === undefined) this.socket.terminate()
    else this.socket.close(code, reason)
  }
}

const send = (socket: WebSocket, frame: Frame): Effect.Effect<void> =>
  Effect.async(resume => {
    let isFull = false
    socket.send(frame, { binary: typeof frame !== "string" }, () => {
      if (isFull) resume(Effect.void)
    })
    isFull = socket.bufferedAmount > highWater
    if (!isFull) resume(Effect.void)
  })

const onMessage = (instance: Instance, ledger: Ledger, data: RawData, isBinary: boolean): void => {
  const frame = decodeFrame(isBinary ? undefined : String(data))
  if (frame._tag === "Left") {
    ledger.frame("other")
    instance.emit({ type: "error", code: "bad_frame", message: frame.left.message, retryable: false })
    return
  }
  ledger.frame(frame.right.type)
  switch (frame.right.type) {
    case "message":
      return instance.message(frame.right.content, frame.right.turnId)
    case "interrupt":
      return instance.interrupt(frame.right.turnId)
    case "answer":
      instance.answer(frame.right.requestId, frame.right.answer)
  }
}

/**
 * Sends an instance's events over a WebSocket, beginning with number `from`, and takes in what the client sends,
 * until either side is gone. A client that falls out of the history is closed with 1013.
 */
export const serve = (
  socket: WebSocket,
  instance: Instance,
  ledger: Ledger,
  from: number,
  { malformed, drop, drip }: Delivery
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const progress = new Progress(socket, instance, from - 1)
    const { history } = instance
    const isOpen = () => socket.readyState === socket.OPEN
    const next = () =>
      !isOpen() || instance.end !== undefined || history.last > progress.sent ? Option.some(undefined) : Option.none()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        socket.on("message", (data, isBinary) => onMessage(instance, ledger, data, isBinary))
        // A failed socket closes; there is nobody else to tell.
        socket.on("error", () => socket.terminate())
        socket.on("close", () => instance.detach(progress))
        if (isOpen()) instance.attach(progress)
      }),
      () => Effect.sync(() => socket.terminate())
    )
    if (malformed) for (const frame of malformedFrames) yield* send(socket, frame)
    let count = 0
    while (isOpen()) {
      if (drop !== undefined && count >= drop.after) {
        // What was sent before is on its way only after the loop has turned.
        yield* breathe
        progress.close(drop.code)
        break
      }
      yield* instance.changes.until(next)
      if (!isOpen()) break
      if (progress.sent >= history.last || instance.end === "reclaimed") {
        progress.close(instance.end === "reclaimed" ? undefined : instance.end === "stopped" ? 1000 : 1011)
        break
      }
      const frame = history.get(progress.sent + 1)
      if (frame === undefined) {
        progress.close(1013, "too slow")
        break
      }
      if (drip !== undefined) yield* Effect.sleep(drip.everyMillis)
      yield* send(socket, frame)
      progress.sent++
      count++
      instance.changes.notify()
      if (count % burst === 0) yield* breathe
    }
    // The peer is given until the scope closes, or until `ws` loses patience, to answer the close.
    yield* Effect.async<void>(resume => {
      if (socket.readyState === socket.CLOSED) resume(Effect.void)
      else socket.once("close", () => resume(Effect.void))
    })
  }).pipe(Effect.scoped)
