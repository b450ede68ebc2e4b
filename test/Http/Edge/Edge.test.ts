import { Effect, Exit, Fiber, Layer, Option } from "effect"
import * as Direct from "../../../src/base/Direct.ts"
import { Store } from "../../../src/Kv/Store.ts"
import type { Write } from "../../../src/Kv/Write.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { routing } from "../../suites/Http/Routing.ts"
import { endingSuite, essential, httpSuite, ofStore, ofTransport, outageSuite } from "../../suites/HttpSuite.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

const withoutFiber = <A, E>(what: string, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Direct.suspend(() =>
    Option.isSome(Fiber.getCurrentFiber()) ? Exit.die(new Error(`a fiber was run for a ${what}`)) : effect
  )

/** A store that dies where a fiber reads an entry or writes. */
const withoutFibers = Layer.effect(
  Store,
  Effect.map(Store, store => ({
    ...store,
    get: (namespace: string, key: string) => withoutFiber("get", store.get(namespace, key)),
    commit: (write: Write) => withoutFiber("write", store.commit(write))
  }))
).pipe(Layer.provideMerge(Memory.layer))

httpSuite(quickEdge, "memory", withoutFibers, { ...ofTransport, ...ofStore })
outageSuite(quickEdge)
endingSuite(quickEdge, "memory", Memory.layer)
httpSuite(edge, "memory", Memory.layer, { routing, ...essential })
endingSuite(edge, "memory", Memory.layer)
