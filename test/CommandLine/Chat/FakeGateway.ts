/** A fake gateway for tests of its client: it keeps sessions in memory, and fails on demand. */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, type Scope } from "effect"
import { type WebSocket, WebSocketServer } from "ws"
import {
  type Answer,
  type ErrorCode,
  type Event,
  type EventBody,
  encode,
  errorAnswer,
  event,
  type Request,
  type Session
} from "../../../src/Gateway/Protocol.ts"
import { decodeRequest } from "../../../src/Gateway/Requests.ts"

/** What the agent does on a message or an answer, in order. */
export type Step =
  | EventBody
  /** Closes all connections with a code. Later events are kept for clients that reconnect. */
  | { readonly close: number }
  /** Replaces the history by another one. */
  | { readonly reset: string }
  /** Removes the events up to this one. */
  | { readonly trim: number }

export interface Behaviour {
  readonly onMessage: (content: string, turnId: string) => ReadonlyArray<Step>
  readonly onAnswer?: (answer: unknown, requestId: string) => ReadonlyArray<Step>
  /** Refuses requests of a type. */
  readonly refusals?: Readonly<Partial<Record<Request["type"], ErrorCode>>>
  /** Refuses handshakes with a status. */
  readonly status?: () => number | undefined
}

/** What all events and refusals have. */
export const traceId = "0123456789abcdef0123456789abcdef"

/** The fake gateway's state, as tests see it. */
export interface FakeGateway {
  readonly url: string
  readonly requests: ReadonlyArray<Request>
  /** The `Authorization` headers and subprotocols of all handshakes. */
  readonly handshakes: ReadonlyArray<{ readonly authorization: string | undefined; readonly protocol: string }>
}

export const make = (behaviour: Behaviour): Effect.Effect<FakeGateway, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<FakeGateway & { readonly end: () => void }>(resume => {
      const requests: Array<Request> = []
      const handshakes: Array<{ authorization: string | undefined; protocol: string }> = []
      const following = new Set<WebSocket>()
      let log: Array<Event> = []
      let epoch = "e_1"
      let trimmed = 0
      let turns = 0

      const head = () => log.at(-1)?.seq ?? trimmed
      const session = (): Session => ({
        id: "s_1",
        tenant: "dev",
        agentType: "assistant",
        title: "",
        state: "active",
        instanceId: null,
        createdAt: 0,
        updatedAt: 0,
        epoch,
        headSeq: head()
      })

      const refusal = '{"error":"not you"}'
      // Clients ask why a handshake is refused.
      const server = createServer((_, response) => response.writeHead(behaviour.status?.() ?? 500).end(refusal))
      const sockets = new WebSocketServer({ noServer: true })

      const perform = (steps: ReadonlyArray<Step>) => {
        for (const step of steps) {
          if ("close" in step) {
            for (const socket of sockets.clients) {
              following.delete(socket)
              socket.close(step.close)
            }
          } else if ("reset" in step) {
            epoch = step.reset
            log = []
            trimmed = 0
          } else if ("trim" in step) {
            log = log.filter(({ seq }) => seq > step.trim)
            trimmed = step.trim
          } else {
            const next = event({ sessionId: "s_1", seq: head() + 1, timestamp: 0, traceId }, step)
            log.push(next)
            for (const socket of following) socket.send(encode(next))
          }
        }
      }

      const answer = (socket: WebSocket, request: Request) => {
        const say = (answer: Answer) => socket.send(encode(answer))
        const { id } = request
        const code = behaviour.refusals?.[request.type]
        if (code !== undefined) return say(errorAnswer({ id, code, message: `no ${request.type}`, traceId }))
        switch (request.type) {
          case "create_session":
            return say({ type: "session_created", id, session: session() })
          case "subscribe": {
            const after = request.afterSeq ?? 0
            const isSame = request.epoch === undefined || request.epoch === epoch
            const recovered = isSame && after >= trimmed
            say({ type: "subscribed", id, session: session(), epoch, headSeq: head(), recovered })
            for (const one of log) if (!recovered || one.seq > after) socket.send(encode(one))
            following.add(socket)
            return
          }
          case "send_message": {
            const turnId = `t${++turns}`
            say({ type: "accepted", id, turnId })
            return perform(behaviour.onMessage(request.content, turnId))
          }
          case "answer":
            say({ type: "accepted", id })
            return perform(behaviour.onAnswer?.(request.answer, request.requestId) ?? [])
          case "interrupt_turn":
            say({ type: "accepted", id, turnId: `t${turns}` })
            return perform([{ type: "turn_interrupted", turnId: `t${turns}` }])
          case "list_files":
            return say({ type: "file_list", id, entries: [{ path: request.path ?? "src", type: "directory" }] })
          case "read_file":
            return say({ type: "file_content", id, path: request.path, content: "now", encoding: "utf-8" })
          case "file_at_iteration":
            return say({
              type: "file_content",
              id,
              path: request.path,
              content: `then ${request.iteration}`,
              encoding: "utf-8"
            })
          case "file_history":
            return say({
              type: "file_history_list",
              id,
              path: request.path,
              iterations: [{ iteration: 1, timestamp: 0, size: 4, hash: "h" }]
            })
          case "list_sessions":
            return say({ type: "session_list", id, sessions: [session()] })
          default:
            return say({ type: "session", id, session: session() })
        }
      }

      server.on("upgrade", (request, socket, rest) => {
        handshakes.push({
          authorization: request.headers.authorization,
          protocol: request.headers["sec-websocket-protocol"] ?? ""
        })
        const status = behaviour.status?.()
        if (status !== undefined) {
          const head = `HTTP/1.1 ${status} No\r\ncontent-length: ${refusal.length}\r\nconnection: close\r\n\r\n`
          socket.end(head + refusal)
          return
        }
        sockets.handleUpgrade(request, socket, rest, socket => {
          socket.on("close", () => following.delete(socket))
          socket.on("message", data => {
            const request = decodeRequest(String(data))
            if (request._tag === "Left") throw request.left
            requests.push(request.right)
            answer(socket, request.right)
          })
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo
        const gateway: FakeGateway & { readonly end: () => void } = {
          url: `ws://127.0.0.1:${port}/ws`,
          requests,
          handshakes,
          end: () => {
            for (const socket of sockets.clients) socket.terminate()
            server.close()
          }
        }
        resume(Effect.succeed(gateway))
      })
    }),
    gateway => Effect.sync(gateway.end)
  )
