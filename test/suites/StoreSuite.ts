import { describe, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import * as TestClock from "effect/TestClock"
import type { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import type { Store } from "../../src/Kv/Store.ts"
import { conditional, entries } from "./Store/Entries.ts"
import { expiry } from "./Store/Expiry.ts"
import { type Check, start } from "./Store/Fixture.ts"
import { idempotency } from "./Store/Idempotency.ts"
import { lists } from "./Store/Lists.ts"
import { log } from "./Store/Log.ts"
import { namespaces } from "./Store/Namespaces.ts"
import { prefixDeletes } from "./Store/PrefixDeletes.ts"
import { races } from "./Store/Races.ts"
import { ranges } from "./Store/Ranges.ts"
import { reads } from "./Store/Reads.ts"
import { values } from "./Store/Values.ts"

const parts = {
  entries,
  conditional,
  expiry,
  values,
  lists,
  ranges,
  namespaces,
  reads,
  prefixDeletes,
  idempotency,
  log,
  races
}

/**
 * The conformance suite of storage backends.
 *
 * Each test builds a new `layer` and expects an empty store; time is the TestClock's.
 */
export const storeSuite = (name: string, layer: Layer.Layer<Store | ChangeLog, unknown>): void => {
  describe(name, () => {
    for (const [part, register] of Object.entries(parts)) {
      describe(part, () => {
        const check: Check = (title, body) =>
          it.scoped(title, () => Effect.zipRight(TestClock.setTime(start), Effect.provide(Effect.gen(body), layer)))
        register(check)
      })
    }
  })
}
