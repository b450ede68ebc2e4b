/** The requests to trace. */
import { Agent, request } from "node:http"
import { Effect, Schema, type Scope } from "effect"
import { SignJWT } from "jose"
import { WebSocket } from "ws"
import type { RequestFrame } from "../../src/Gateway/Protocol.ts"
import type { Simulator } from "../../src/Simulator/Simulator.ts"
import { key, type Service } from "./Service.ts"

/** A request was not answered 2xx. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", { answer: Schema.String }) {
  override get message(): string {
    return `A request was answered ${this.answer}`
  }
}

/** One request; it completes when its answer has arrived. */
export type Request = Effect.Effect<void, Refused>

/** The secret of clients' tokens. */
export const secret = "a secret of at least thirty-two bytes"

// With a time limit of its own the agent heeds the server's, and does not write to a connection that is being closed.
const agent = new Agent({ keepAlive: true, maxSockets: 1, timeout: 60_000 })

const send = ({ port }: Service, method: string, path: string, body?: unknown): Request =>
  Effect.async(resume => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
    const refuse = (answer: string) => resume(new Refused({ answer: `${method} ${path}: ${answer}` }))
    const sent = request({ host: "127.0.0.1", port, method, path, headers, agent }, response => {
      const { statusCode = 0 } = response
      response.resume().once("end", () => {
        if (statusCode < 300) resume(Effect.void)
        else refuse(String(statusCode))
      })
    })
    sent.once("error", ({ message }) => refuse(message))
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })

/** The requests to the key-value store. */
export const store = (service: Service): Readonly<Record<string, Request>> => ({
  PUT: send(service, "PUT", "/api/v1/kv/paths/key", { value: { some: "text" } }),
  GET: send(service, "GET", "/api/v1/kv/paths/key"),
  "batch of 2": send(service, "POST", "/api/v1/batch", {
    operations: [
      { op: "set", namespace: "paths", key: "a", value: 1 },
      { op: "set", namespace: "paths", key: "b", value: 2 }
    ]
  }),
  "poll that is answered at once": send(service, "GET", "/api/v1/changes?after=0&limit=20")
})

const Frame = Schema.parseJson(
  Schema.Struct({
    type: Schema.String,
    session: Schema.optional(Schema.Struct({ id: Schema.String })),
    turnId: Schema.optional(Schema.String)
  })
)

/** A client of the gateway, until the scope closes. */
const connect = ({ port }: Service) =>
  Effect.gen(function* () {
    const token = yield* Effect.promise(() =>
      new SignJWT({ tenant: "paths", sub: "paths" })
        .setProtectedHeader({ alg: "HS256" })
        .setExpirationTime("1 hour")
        .sign(new TextEncoder().encode(secret))
    )
    const headers = { authorization: `Bearer ${token}` }
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => new WebSocket(`ws://127.0.0.1:${port}/ws`, { headers })),
      socket => Effect.sync(() => socket.terminate())
    )
    yield* Effect.async<void, Refused>(resume => {
      socket.once("open", () => resume(Effect.void))
      socket.once("error", ({ message }) => resume(new Refused({ answer: message })))
    })
    /** The next frame of a type. */
    const next = (type: string) =>
      Effect.async<typeof Frame.Type, Refused>(resume => {
        const onMessage = (data: WebSocket.RawData) => {
          const frame = Schema.decodeUnknownSync(Frame)(String(data))
          if (frame.type !== type && frame.type !== "error") return
          socket.off("message", onMessage)
          resume(frame.type === type ? Effect.succeed(frame) : new Refused({ answer: String(data) }))
        }
        socket.on("message", onMessage)
      })
    const ask = (frame: RequestFrame, type: string) =>
      Effect.zipLeft(
        next(type),
        Effect.sync(() => socket.send(JSON.stringify(frame))),
        { concurrent: true }
      )
    return { ask, next }
  })

/** A text event of the platform, until a client has received it. */
export const event = (
  service: Service,
  simulator: typeof Simulator.Service
): Effect.Effect<Request, Refused, Scope.Scope> =>
  Effect.gen(function* () {
    const { ask, next } = yield* connect(service)
    const { session } = yield* ask({ type: "create_session", id: "1", agentType: "echo" }, "session_created")
    const sessionId = session?.id ?? ""
    yield* ask({ type: "subscribe", id: "2", sessionId }, "subscribed")
    const { turnId } = yield* ask({ type: "send_message", id: "3", sessionId, content: "/hang" }, "accepted")
    const { instances } = yield* simulator.awaitState(({ instances }) => instances.some(({ turns }) => turns > 0))
    const delta = { type: "message.delta", turnId, messageId: `${turnId}-message-1`, delta: "some text" }
    const emitted = Effect.orDie(simulator.emit(instances[0]?.id ?? "", delta))
    return Effect.asVoid(Effect.zipLeft(next("text_delta"), emitted, { concurrent: true }))
  })
