import { Effect, Exit, Mailbox, Option, Redacted, Schema, type Scope } from "effect"
import { WebSocket } from "ws"
import { shouldReconnect } from "../../src/Gateway/Protocol.ts"

/** The connection ended or failed. */
export class Disconnected extends Schema.TaggedError<Disconnected>()("Disconnected", {
  reason: Schema.String,
  /** Whether to reconnect is useless. */
  isFinal: Schema.Boolean
}) {
  override get message(): string {
    return this.reason
  }
}

/** An open WebSocket. */
export interface Connection {
  /** Sends a frame; does nothing after the end. */
  readonly send: (frame: string) => void
  /** The next frame. Reading from the server pauses while frames are waiting here. */
  readonly next: Effect.Effect<string, Disconnected>
}

/** The address of the gateway, and the credential. */
export interface Target {
  readonly url: string
  readonly token: Option.Option<Redacted.Redacted>
}

/** The number of waiting frames at which reading pauses. Frames that arrived in the same packet are added. */
const enough = 256

/** The code of a connection that ended without a close frame (RFC 6455, 7.1.5). */
const abnormal = 1006

const ErrorBody = Schema.parseJson(Schema.Struct({ error: Schema.String }))

/** A 4xx other than 408 and 429 will be the same next time. */
const isFinalStatus = (status: number): boolean => status < 500 && status !== 408 && status !== 429

const refusal = (status: number, body: string): Disconnected => {
  const said = Option.match(Schema.decodeUnknownOption(ErrorBody)(body), {
    onNone: () => "",
    onSome: ({ error }) => `: ${error}`
  })
  return new Disconnected({ reason: `the gateway answers ${status}${said}`, isFinal: isFinalStatus(status) })
}

const closed = (code: number, reason: string): Disconnected => {
  const said = reason === "" ? "" : ` ${reason}`
  return new Disconnected({
    reason: code === abnormal ? "the connection broke" : `the gateway closed the connection (${code}${said})`,
    isFinal: !shouldReconnect(code)
  })
}

/** The socket during its handshake. */
const handshake = ({ url, token }: Target) => {
  const headers = Option.match(token, {
    onNone: () => ({}),
    onSome: token => ({ authorization: `Bearer ${Redacted.value(token)}` })
  })
  return new WebSocket(url, ["causeway.v1"], { headers, perMessageDeflate: false })
}

const opened = (socket: WebSocket): Effect.Effect<void, Disconnected> =>
  Effect.async<void, Disconnected>(resume => {
    socket.once("open", () => resume(Effect.void))
    socket.once("error", error => resume(new Disconnected({ reason: error.message || error.name, isFinal: false })))
    socket.once("unexpected-response", (_, response) => {
      let body = ""
      response.setEncoding("utf8")
      response.on("data", (text: string) => {
        if (body.length < 4096) body += text
      })
      response.once("close", () => {
        resume(refusal(response.statusCode ?? 0, body))
        socket.terminate()
      })
    })
  })

/** Opens a WebSocket that is closed with the scope. */
export const open = (target: Target): Effect.Effect<Connection, Disconnected, Scope.Scope> =>
  Effect.gen(function* () {
    const mailbox = yield* Mailbox.make<string, Disconnected>()
    const waiting = () => Option.getOrElse(mailbox.unsafeSize(), () => 0)
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const socket = handshake(target)
        // An error ends the connection, which is handled below.
        socket.on("error", () => {})
        socket.on("message", data => {
          mailbox.unsafeOffer(String(data))
          if (waiting() >= enough) socket.pause()
        })
        socket.on("close", (code, reason) => {
          mailbox.unsafeDone(Exit.fail(closed(code, reason.toString())))
        })
        return socket
      }),
      socket =>
        Effect.sync(() => {
          // The gateway's close frame is not waited for.
          socket.close(1000)
          setImmediate(() => socket.terminate())
        })
    )
    yield* Effect.timeoutFail(opened(socket), {
      duration: "15 seconds",
      onTimeout: () => new Disconnected({ reason: "the gateway does not answer", isFinal: false })
    })
    const next = Effect.catchTag(mailbox.take, "NoSuchElementException", () => Effect.never)
    return {
      send: frame => {
        if (socket.readyState === WebSocket.OPEN) socket.send(frame)
      },
      next: Effect.tap(next, () =>
        Effect.sync(() => {
          if (socket.isPaused && waiting() < enough / 2) socket.resume()
        })
      )
    }
  })
