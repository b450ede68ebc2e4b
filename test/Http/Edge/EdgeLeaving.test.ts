import { expect, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Logger } from "effect"
import * as Direct from "../../../src/base/Direct.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { at, head } from "../../suites/Http/Fixture.ts"
import * as Wire from "../../suites/Http/Wire.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

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
