/** A gateway on a real port, and clients for it. */
import { createServer } from "node:http"
import type { AddressInfo, Socket as NetSocket } from "node:net"
import * as HttpApi from "@effect/platform/HttpApi"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { it } from "@effect/vitest"
import { Context, Effect, ExecutionStrategy, Exit, Layer, Option, Schema, Scope } from "effect"
import { WebSocket } from "ws"
import * as Tracer from "../../../src/base/Observability/Tracer.ts"
import { AgUiGroup } from "../../../src/Gateway/AgUi/Api.ts"
import * as AgUiEndpoints from "../../../src/Gateway/AgUi/Endpoints.ts"
import * as AgUi from "../../../src/Gateway/AgUi/Handlers.ts"
import { ChatGroup } from "../../../src/Gateway/AiSdk/Api.ts"
import * as ChatEndpoints from "../../../src/Gateway/AiSdk/Endpoints.ts"
import * as AiSdk from "../../../src/Gateway/AiSdk/Handlers.ts"
import { GatewayGroup } from "../../../src/Gateway/Api.ts"
import * as Authentication from "../../../src/Gateway/Authentication.ts"
import * as Access from "../../../src/Gateway/Clients/Access.ts"
import { layerAccess } from "../../../src/Gateway/Clients/Credentials.ts"
import * as Clients from "../../../src/Gateway/Clients.ts"
import * as AgentHistories from "../../../src/Gateway/Conversations/AgentHistories.ts"
import * as Conversations from "../../../src/Gateway/Conversations.ts"
import { SessionsGroup } from "../../../src/Gateway/HttpSessions/Api.ts"
import * as SessionEndpoints from "../../../src/Gateway/HttpSessions/Endpoints.ts"
import * as HttpSessions from "../../../src/Gateway/HttpSessions/Handlers.ts"
import type { Answer, AnswerOf, Event, RequestFrame } from "../../../src/Gateway/Protocol.ts"
import * as Registry from "../../../src/Gateway/Sessions/Registry.ts"
import * as SessionSettings from "../../../src/Gateway/Sessions/Settings.ts"
import * as GatewayEndpoints from "../../../src/Gateway/Socket/Endpoints.ts"
import * as Socket from "../../../src/Gateway/Socket.ts"
import * as Threads from "../../../src/Gateway/Streams/Threads.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as Edge from "../../../src/Http/Edge/Edge.ts"
import type { Listeners } from "../../../src/Http/Server/Gate.ts"
import * as Body from "../../../src/Kv/Body.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import { until } from "../../../src/Simulator/Testing/Time.ts"
import * as AgUiAgent from "../../../src/Upstream/AgUiAgent.ts"
import * as UpstreamClients from "../../../src/Upstream/UpstreamClients.ts"
import { given } from "../../Given.ts"
import { type Options as FixtureOptions, inMemory, type Life, mortalLayer, type Stored, upstreams } from "../Fixture.ts"

export interface Options extends FixtureOptions {
  readonly authentication?: Partial<Authentication.Settings>
  readonly socket?: Partial<Clients.Settings>
  /** AG-UI agents in place of the simulated platform. */
  readonly agents?: Partial<AgUiAgent.Settings> | undefined
}

/** The services behind a gateway: AG-UI agents, which get the conversations that are stored, or those of a simulator. */
const upstreamOf = (
  { agents, inference }: Pick<Options, "agents" | "inference">,
  simulator: Context.Tag.Service<Simulator.Simulator>,
  stored: Context.Context<Stored>
) =>
  agents === undefined
    ? upstreams(simulator, inference)
    : UpstreamClients.layerAgents({ agents: { ...AgUiAgent.none, ...agents } }).pipe(
        Layer.provide(Layer.provide(AgentHistories.layer, Layer.succeedContext(stored))),
        Layer.provide(NodeHttpClient.layerUndici)
      )

const listen = (listeners: Listeners) =>
  Effect.acquireRelease(
    Effect.async<{ port: number; close: () => void }>(resume => {
      const server = createServer(listeners.request)
      const sockets = new Set<NetSocket>()
      server.on("connection", socket => {
        sockets.add(socket)
        socket.once("close", () => sockets.delete(socket))
      })
      server.on("upgrade", (request, socket, head) => {
        socket.on("error", () => {})
        listeners.upgrade(request, socket, head)
      })
      server.listen(0, "127.0.0.1", () => {
        const close = () => {
          server.close()
          for (const socket of sockets) socket.destroy()
        }
        resume(Effect.succeed({ port: (server.address() as AddressInfo).port, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )

/** A simulator, the storage, and gateways on ports of their own that are started and killed. */
export const make = (options: Options = {}) =>
  Effect.gen(function* () {
    const simulator = yield* Simulator.make({ seed: 1, ...options.simulator })
    const stored = yield* Layer.build(options.stored ?? inMemory)
    const authentication =
      options.authentication === undefined
        ? Authentication.layerDev({ origins: [] })
        : Authentication.layer({
            secret: Option.none(),
            keySetUrl: Option.none(),
            audience: Option.none(),
            issuer: Option.none(),
            origins: [],
            ...options.authentication
          }).pipe(Layer.provide(NodeHttpClient.layerUndici))
    const start = Effect.gen(function* () {
      const life: Life = { isOver: false }
      const scope = yield* Scope.make()
      yield* Effect.addFinalizer(() => (life.isOver ? Effect.void : Scope.close(scope, Exit.void)))
      const clients = yield* Layer.buildWithScope(upstreamOf(options, simulator, stored), scope)
      const context = yield* Layer.buildWithScope(
        Socket.layer({ ...Clients.defaults, ...options.socket }).pipe(
          Layer.merge(HttpSessions.layer),
          Layer.merge(AgUi.layer),
          Layer.merge(AiSdk.layer({ ...Clients.defaults, ...options.socket })),
          Layer.merge(layerAccess),
          Layer.provide(Threads.layer),
          Layer.provideMerge(Clients.layer({ ...Clients.defaults, ...options.socket })),
          Layer.provideMerge(Conversations.layer),
          Layer.provideMerge(Registry.layer({ ...SessionSettings.defaults, ...options.settings })),
          Layer.provide(mortalLayer(Context.merge(stored, clients), life)),
          Layer.provide(authentication),
          Layer.provideMerge(DrainingSignal.layer),
          Layer.provide(Tracer.layer)
        ),
        scope
      )
      const socket = Context.get(context, GatewayEndpoints.Socket)
      const serverScope = yield* Scope.fork(scope, ExecutionStrategy.sequential)
      const api = HttpApi.make("test").add(GatewayGroup).add(SessionsGroup).add(AgUiGroup).add(ChatGroup)
      const handlers = {
        gateway: GatewayEndpoints.endpoints,
        sessions: SessionEndpoints.endpoints,
        agUi: AgUiEndpoints.endpoints,
        chat: ChatEndpoints.endpoints
      }
      const listeners = yield* Edge.make(api, handlers, Access.guards).pipe(
        Effect.provide(
          Context.pick(
            GatewayEndpoints.Socket,
            SessionEndpoints.HttpSessions,
            AgUiEndpoints.AgUi,
            ChatEndpoints.AiSdk,
            Access.Access
          )(context)
        ),
        Effect.provide(Body.layer)
      )
      const { port } = yield* Scope.extend(listen(listeners), serverScope)
      return {
        url: `ws://127.0.0.1:${port}/ws`,
        base: `http://127.0.0.1:${port}/api/v1/sessions`,
        agUi: `http://127.0.0.1:${port}/api/v1/ag-ui`,
        chats: `http://127.0.0.1:${port}/api/v1/chat/echo`,
        port,
        socket,
        draining: Context.get(context, DrainingSignal.DrainingSignal),
        stop: Scope.close(scope, Exit.void),
        /** As by kill -9: nothing more is sent, and connections break. */
        kill: Effect.sync(() => {
          life.isOver = true
        }).pipe(
          Effect.zipRight(Scope.close(serverScope, Exit.void)),
          Effect.zipRight(Effect.ignore(simulator.disconnect()))
        )
      }
    })
    return { simulator, stored, start }
  })

/** The same with a gateway that is started. */
export const makeStarted = (options?: Options) =>
  Effect.gen(function* () {
    const made = yield* make(options)
    return { ...made, ...(yield* made.start) }
  })

/** Tests of a gateway, by the real clock. */
export const live = given(it.scopedLive, makeStarted)

/** Tests of a gateway, by the test's clock. */
export const timed = given(it.scoped, makeStarted)

/** A handshake that was refused: the status and the error of the answer. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  status: Schema.Int,
  error: Schema.String
}) {}

/** A request without its id. */
export type Asked = RequestFrame extends infer Frame ? (Frame extends RequestFrame ? Omit<Frame, "id"> : never) : never

export interface Client {
  readonly socket: WebSocket
  /** All frames received, in order. */
  readonly frames: ReadonlyArray<Answer | Event>
  readonly events: (sessionId?: string) => ReadonlyArray<Event>
  /** Sends a request and waits for its answer. */
  readonly ask: (request: Asked, id?: string) => Effect.Effect<Answer>
  /** Sends a request that must succeed. */
  readonly get: <Type extends Answer["type"]>(type: Type, request: Asked) => Effect.Effect<AnswerOf<Type>>
  readonly send: (data: string | Buffer) => Effect.Effect<void>
  /** Waits until a frame matches. */
  readonly until: (matches: (frame: Answer | Event) => boolean) => Effect.Effect<Answer | Event>
  readonly untilEvent: (sessionId: string, matches: (event: Event) => boolean) => Effect.Effect<Event>
  readonly closed: Effect.Effect<{ readonly code: number; readonly reason: string }>
  readonly isOpen: () => boolean
}

interface ConnectOptions {
  readonly headers?: Readonly<Record<string, string | Array<string>>>
  readonly protocols?: ReadonlyArray<string>
}

const isEvent = (frame: Answer | Event): frame is Event => "seq" in frame && frame.type !== "conversation"

/**
 * Connects until the scope closes. Whatever waits for a frame, or for the connection itself, can be interrupted; a wait
 * for a frame that the connection has not brought when it is closed is a defect.
 */
export const connect = (
  url: string,
  { headers = {}, protocols = [] }: ConnectOptions = {}
): Effect.Effect<Client, Refused, Scope.Scope> =>
  Effect.gen(function* () {
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => new WebSocket(url, [...protocols], { headers }).on("error", () => undefined)),
      socket => Effect.sync(() => socket.terminate())
    )
    const changes = new Changes()
    const frames: Array<Answer | Event> = []
    let closed: { code: number; reason: string } | undefined
    let lastId = 0
    const until = (matches: (frame: Answer | Event) => boolean, what = "a frame") => {
      let looked = 0
      return changes.until(() => {
        while (looked < frames.length) {
          const frame = frames[looked++]!
          if (matches(frame)) return Option.some(frame)
        }
        if (closed !== undefined) throw new Error(`The connection was closed (${closed.code}) before ${what} came`)
        return Option.none()
      })
    }
    const ask: Client["ask"] = (request, own) =>
      Effect.suspend(() => {
        // Another one each time that the effect is run, so that a repeated request does not find the answer to the first.
        const id = own ?? `r${++lastId}`
        const isAnswer = (frame: Answer | Event) => !isEvent(frame) && "id" in frame && frame.id === id
        socket.send(JSON.stringify({ ...request, id }), () => undefined)
        return until(isAnswer, `the answer to ${request.type}`) as Effect.Effect<Answer>
      })
    socket.on("message", data => {
      frames.push(JSON.parse(data.toString("utf8")) as Answer | Event)
      changes.notify()
    })
    socket.on("close", (code, reason) => {
      closed = { code, reason: reason.toString("utf8") }
      changes.notify()
    })
    yield* Effect.async<void, Refused>(resume => {
      socket.once("unexpected-response", (_request, response) => {
        let body = ""
        response.setEncoding("utf8")
        response.on("data", (chunk: string) => {
          body += chunk
        })
        response.on("close", () => {
          const { error } = (response.complete ? JSON.parse(body) : { error: "cut off" }) as { error: string }
          resume(Effect.fail(new Refused({ status: response.statusCode!, error })))
        })
      })
      socket.once("error", error => resume(Effect.fail(new Refused({ status: 0, error: error.message }))))
      socket.once("open", () => resume(Effect.void))
    })
    return {
      socket,
      frames,
      events: sessionId =>
        frames.filter(isEvent).filter(event => sessionId === undefined || event.sessionId === sessionId),
      ask,
      get: <Type extends Answer["type"]>(type: Type, request: Asked) =>
        Effect.flatMap(ask(request), answer =>
          answer.type === type
            ? Effect.succeed(answer as AnswerOf<Type>)
            : Effect.die(new Error(`${request.type} was answered ${JSON.stringify(answer)}`))
        ),
      send: data => Effect.sync(() => socket.send(data)),
      until,
      untilEvent: (sessionId, matches) =>
        until(frame => isEvent(frame) && frame.sessionId === sessionId && matches(frame)) as Effect.Effect<Event>,
      closed: changes.until(() => Option.fromNullable(closed)),
      isOpen: () => socket.readyState === WebSocket.OPEN
    }
  })

/** Creates a session and returns its id. */
export const createSession = (client: Client, fields: Partial<Extract<Asked, { type: "create_session" }>> = {}) =>
  Effect.map(
    client.get("session_created", { type: "create_session", agentType: "echo", ...fields }),
    ({ session }) => session.id
  )

/** Sends a message, waits for the end of its turn, and returns the turn's id. */
export const completeTurn = (client: Client, sessionId: string, content: string) =>
  Effect.gen(function* () {
    const { turnId } = yield* client.get("accepted", { type: "send_message", sessionId, content })
    yield* client.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
    return turnId!
  })

/** The code of an error answer; the answer's type where it is none. */
export const codeOf = (answer: Answer): string => (answer.type === "error" ? answer.error.code : answer.type)

export { until }
