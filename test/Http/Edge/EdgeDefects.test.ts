/** Handlers whose defects appear only when their answer is written. */
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import { expect, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Layer, Logger } from "effect"
import * as Direct from "../../../src/base/Direct.ts"
import * as Tracer from "../../../src/base/Observability/Tracer.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as Edge from "../../../src/Http/Edge/Edge.ts"
import * as Endpoints from "../../../src/Http/Endpoints.ts"
import * as Reply from "../../../src/Http/Reply.ts"
import * as NodeServer from "../../../src/Http/Server/NodeServer.ts"
import * as WebSocket from "../../../src/Http/WebSocket.ts"
import * as Body from "../../../src/Kv/Body.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { portOf } from "../../Harness.ts"
import { at, head } from "../../suites/Http/Fixture.ts"
import * as Wire from "../../suites/Http/Wire.ts"
import { connect, socketSettings } from "../Server/Fixture.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

const group = HttpApiGroup.make("odd")
  .add(HttpApiEndpoint.get("exit", "/exit"))
  .add(HttpApiEndpoint.get("callback", "/callback"))
  .add(HttpApiEndpoint.get("fiber", "/fiber"))
  .add(HttpApiEndpoint.get("unmade", "/unmade").addSuccess(HttpApiSchema.Empty(101)))
  .add(HttpApiEndpoint.get("unopened", "/unopened").addSuccess(HttpApiSchema.Empty(101)))

const unwritable = Reply.empty(204, { "x-odd": "a\nb" })

const mistake = (): never => {
  throw new Error("a mistake")
}

const handler = { ...Object.fromEntries(["onMessage", "onClosed"].map(name => [name, () => {}])), onOpen: mistake }

const handlers = Endpoints.of(
  group,
  Effect.gen(function* () {
    const connections = yield* WebSocket.connectionSet(socketSettings)
    const upgrade = (handlerOf: () => WebSocket.Handler): Effect.Effect<Reply.Reply> =>
      Effect.succeed(Reply.webSocket({ connections, accept: connect => connect(handlerOf) }))
    return {
      exit: () => Exit.succeed(unwritable),
      callback: () =>
        Direct.async<Reply.Reply>(resume => {
          resume(Exit.succeed(unwritable))
          return () => {}
        }),
      fiber: () => Effect.delay(Effect.succeed(unwritable), 1),
      unmade: () => upgrade(mistake),
      unopened: () => upgrade(() => handler as unknown as WebSocket.Handler)
    }
  })
)

const serve = Effect.gen(function* () {
  const server = NodeServer.layer({ host: "127.0.0.1", port: 0, gracePeriod: 0 })
  const api = HttpApi.make("test").add(group)
  const app = NodeServer.serve(Edge.make(api, { odd: handlers }, Effect.succeed([]))).pipe(Layer.provideMerge(server))
  const context = yield* Layer.build(
    Layer.provide(app, Layer.mergeAll(Body.layer, DrainingSignal.layer, Tracer.layerOff))
  )
  return portOf(Context.get(context, NodeServer.NodeServer))
})

/** Everything that a server sends on a connection until it ends. */
const received = async (port: number, path: string, ...headers: ReadonlyArray<string>): Promise<string> => {
  const { closed, received, socket } = await connect(port)
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n${headers.map(line => `${line}\r\n`).join("")}\r\n`)
  await closed
  return received()
}

const quiet = Logger.remove(Logger.defaultLogger)

it.scopedLive("an answer that cannot be written is answered with 500", () =>
  Effect.gen(function* () {
    const port = yield* serve
    for (const path of ["/exit", "/callback", "/fiber"]) {
      const answer = yield* Effect.promise(() => received(port, path, "Connection: close"))
      expect([path, answer.split("\r\n", 1)[0]]).toEqual([path, "HTTP/1.1 500 Internal Server Error"])
    }
  }).pipe(Effect.provide(quiet))
)

it.scopedLive("nothing but the handshake is written on a WebSocket whose handler throws", () =>
  Effect.gen(function* () {
    const port = yield* serve
    for (const path of ["/unmade", "/unopened"]) {
      const answer = yield* Effect.promise(() =>
        received(
          port,
          path,
          "Connection: Upgrade",
          "Upgrade: websocket",
          "Sec-WebSocket-Version: 13",
          "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
        )
      )
      expect([path, answer.match(/HTTP\/1.1 \d+/g)]).toEqual([path, ["HTTP/1.1 101"]])
      expect(answer.slice(answer.indexOf("\r\n\r\n"))).toBe("\r\n\r\n")
    }
  }).pipe(Effect.provide(quiet))
)

/** A store whose commits do not end, and that signals when one was started and when it was withdrawn. */
const hanging = Effect.gen(function* () {
  const begun = yield* Deferred.make<void>()
  const takenBack = yield* Deferred.make<number>()
  let calls = 0
  const commit = () =>
    Direct.async<never>(() => {
      Deferred.unsafeDone(begun, Effect.void)
      return () => Deferred.unsafeDone(takenBack, Effect.succeed(++calls))
    })
  const layer = Layer.effect(
    Store,
    Effect.map(Store, store => ({ ...store, commit }))
  ).pipe(Layer.provideMerge(Memory.layer))
  return { layer, begun: Deferred.await(begun), takenBack: Deferred.await(takenBack) }
})

const batch = '{"operations":[{"op":"delete","namespace":"n","key":"k"}]}'

const value = '{"value":1}'

const requests = [
  head(`PUT ${at("n", "k")}`, `Content-Length: ${value.length}`) + value,
  head(`DELETE ${at("n", "k")}`),
  head("POST /api/v1/batch", `Content-Length: ${batch.length}`) + batch
]

for (const transport of [edge, quickEdge]) {
  it.scopedLive(`a client that disconnects withdraws its waiting write, by the ${transport.name}`, () =>
    Effect.gen(function* () {
      for (const request of requests) {
        const { layer, begun, takenBack } = yield* hanging
        const { port } = yield* transport.serve(layer)
        const connection = yield* Wire.open(port)
        yield* connection.send(request)
        yield* begun
        yield* connection.reset
        expect(yield* takenBack).toBe(1)
      }
    }).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))
  )
}
