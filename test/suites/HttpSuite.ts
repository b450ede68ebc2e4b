import { layer } from "@effect/vitest"
import { Layer } from "effect"
import type { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import type { Store } from "../../src/Kv/Store.ts"
import type { Transport } from "../Harness.ts"
import { bodies } from "./Http/Bodies.ts"
import { entries } from "./Http/Entries.ts"
import { type Check, Site, site } from "./Http/Fixture.ts"
import { names } from "./Http/Names.ts"
import { values } from "./Http/Values.ts"

const parts = { entries, names, values, bodies }

/**
 * What the service must do at its socket, whatever serves it and whatever it keeps its data in.
 *
 * The cases of a part share one service, which is built on an empty store.
 */
export const httpSuite = (transport: Transport, name: string, store: Layer.Layer<Store | ChangeLog, unknown>): void => {
  for (const [part, register] of Object.entries(parts)) {
    layer(Layer.scoped(Site, site(transport, store)), { excludeTestServices: true })(
      `${transport.name}, ${name}: ${part}`,
      it => {
        const check: Check = (title, body) => it.scoped(title, body)
        register(check)
      }
    )
  }
}
