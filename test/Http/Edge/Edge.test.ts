import { Effect, Layer } from "effect"
import { Store } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { endingSuite, httpSuite, outageSuite } from "../../suites/HttpSuite.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

httpSuite(edge, "memory", Memory.layer)
outageSuite(edge)
endingSuite(edge, "memory", Memory.layer)
endingSuite(quickEdge, "memory", Memory.layer)

/** A store that commits for those who come without a fiber only, so that what passes did. */
const withoutFibers = Layer.effect(
  Store,
  Effect.map(Store, ({ commit: { unsafe }, ...store }) => ({
    ...store,
    commit: Object.assign(() => Effect.dieMessage("a fiber was run for a write"), unsafe && { unsafe })
  }))
).pipe(Layer.provideMerge(Memory.layer))

httpSuite(quickEdge, "memory", withoutFibers)
outageSuite(quickEdge)
