import { expect, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { yieldToEventLoop } from "../../src/base/Time/EventLoop.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { times } from "../Scale.ts"
import { idempotencySuite } from "../suites/IdempotencySuite.ts"
import { modelSuite } from "../suites/ModelSuite.ts"
import { set, write } from "../suites/Store/Fixture.ts"
import { storeSuite } from "../suites/StoreSuite.ts"

storeSuite("Memory", Memory.layer)
modelSuite("Memory", { layerAt: () => Memory.layer, persists: false, runs: times(30) })
idempotencySuite("Memory", { layerAt: () => Memory.layer, persists: false, runs: times(20) })

it.scoped("other work is done between the portions of a whole list", () =>
  Effect.gen(function* () {
    yield* write(Array.from({ length: 3000 }, (_, index) => set("n", `k${index}`, 1)))
    const { portions } = yield* (yield* Store).listAll({ namespace: "n", prefix: "" })
    let turns = 0
    const others = yield* Effect.fork(Effect.forever(Effect.tap(yieldToEventLoop, () => Effect.sync(() => turns++))))
    expect(yield* Stream.runFold(portions, 0, (sum, entries) => sum + entries.length)).toBe(3000)
    expect(turns).toBeGreaterThanOrEqual(2)
    yield* Fiber.interrupt(others)
  }).pipe(Effect.provide(Memory.layer))
)
