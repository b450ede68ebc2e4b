/** A WebSocket of a client to a simulated instance. */
import { Effect, Option, Schema } from "effect"
import type { RawData, WebSocket } from "ws"
import { yieldToEventLoop } from "../base/EventLoop.ts"
import type { Delivery } from "./Fault.ts"
import type { Frame, Instance } from "./Instance.ts"
import { malformedFrames } from "./Script.ts"
import type { TrafficLog } from "./TrafficLog.ts"

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

/** Bytes in the socket's buffer above which sending waits. */
const highWaterMark = 256 * 1024

/** Frames that are sent before other fibers and sockets run. */
const burst = 64

const send = (socket: WebSocket, frame: Frame): Effect.Effect<void> =>
  Effect.async(resume => {
    let isFull = false
    socket.send(frame, { binary: typeof frame !== "string" }, () => {
      if (isFull) resume(Effect.void)
    })
    isFull = socket.bufferedAmount > highWaterMark
    if (!isFull) resume(Effect.void)
  })

const onMessage = (instance: Instance, traffic: TrafficLog, data: RawData, isBinary: boolean): void => {
  const frame = decodeFrame(isBinary ? undefined : String(data))
  if (frame._tag === "Left") {
    traffic.frame("other")
    instance.emit({ type: "error", code: "bad_frame", message: frame.left.message, retryable: false })
    return
  }
  traffic.frame(frame.right.type)
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
 * Sends an instance's events over a WebSocket, starting with number `from`, and applies the client's frames, until the
 * client disconnects or the instance ends. A client whose next event is no longer in the history is closed with 1013.
 */
export const serve = (
  socket: WebSocket,
  instance: Instance,
  traffic: TrafficLog,
  from: number,
  { malformed, drop, drip }: Delivery
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const connection = {
      sent: from - 1,
      close: (code: number | undefined, reason = "") => {
        // The instance does not wait for a closing connection.
        instance.detach(connection)
        if (code === undefined) socket.terminate()
        else socket.close(code, reason)
      }
    }
    const { history } = instance
    const isOpen = () => socket.readyState === socket.OPEN
    const next = () =>
      !isOpen() || instance.end !== undefined || history.last > connection.sent ? Option.some(undefined) : Option.none()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        socket.on("message", (data, isBinary) => onMessage(instance, traffic, data, isBinary))
        socket.on("error", () => socket.terminate())
        socket.on("close", () => instance.detach(connection))
        if (isOpen()) instance.attach(connection)
      }),
      () => Effect.sync(() => socket.terminate())
    )
    if (malformed) for (const frame of malformedFrames) yield* send(socket, frame)
    let count = 0
    while (isOpen()) {
      if (drop !== undefined && count >= drop.after) {
        // Frames before are written in the next iteration of the event loop.
        yield* yieldToEventLoop
        connection.close(drop.code)
        break
      }
      yield* instance.changes.until(next)
      if (!isOpen()) break
      if (connection.sent >= history.last || instance.end === "reclaimed") {
        connection.close(instance.end === "reclaimed" ? undefined : instance.end === "stopped" ? 1000 : 1011)
        break
      }
      const frame = history.get(connection.sent + 1)
      if (frame === undefined) {
        connection.close(1013, "too slow")
        break
      }
      if (drip !== undefined) yield* Effect.sleep(drip.everyMillis)
      yield* send(socket, frame)
      connection.sent++
      count++
      instance.changes.notify()
      if (count % burst === 0) yield* yieldToEventLoop
    }
    // Waits for the closing handshake, for which `ws` has a timeout.
    yield* Effect.async<void>(resume => {
      if (socket.readyState === socket.CLOSED) resume(Effect.void)
      else socket.once("close", () => resume(Effect.void))
    })
  }).pipe(Effect.scoped)
