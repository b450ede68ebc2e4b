import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Logger, Redacted } from "effect"
import type { Connection } from "../../src/CommandLine/Connection.ts"
import { type Counted, deleteCounted } from "../../src/CommandLine/Entries/DeleteCounted.ts"
import { countOf } from "../../src/CommandLine/Entries/List.ts"
import * as Client from "../../src/EffectClient/Client.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { keys } from "../Harness.ts"
import { quickEdge } from "../Http/Edge/EdgeTransport.ts"

const namespace = "tenant:acme/carts"
const prefix = "c"

/** The maximum number of keys that may be set during the deletion. */
const most = 10

const keysFrom = (first: number, count: number) =>
  Array.from({ length: count }, (_, index) => `c${String(first + index).padStart(4, "0")}`)

/** A service with so many entries that the list of them has two pages; they have been counted. */
const counted = Effect.gen(function* () {
  const { url } = yield* Effect.provide(quickEdge.serve(Memory.layer), Logger.remove(Logger.defaultLogger))
  const token = Redacted.make(keys.write)
  const client = yield* Client.make({ baseUrl: url, token })
  const connection: Connection = { url, kind: "store", token, source: "", timeout: Duration.seconds(30) }
  const set = (keys: ReadonlyArray<string>) =>
    client.batch(keys.map(key => ({ op: "set", namespace, key, value: 1 }) as const))
  const remove = (keys: ReadonlyArray<string>) =>
    client.batch(keys.map(key => ({ op: "delete", namespace, key }) as const))
  yield* set(keysFrom(0, 1000))
  yield* set(keysFrom(1000, 20))
  const { epoch, lastSeq } = yield* countOf(client, connection, namespace, { prefix })
  const position: Counted = { namespace, prefix, epoch, lastSeq }
  const deleted = deleteCounted(client, connection, position, {}, () => {}, most)
  return { deleted, remove, set }
})

describe("deleteCounted", () => {
  it.scoped("counts neither its own deletes nor those of others as writes", () =>
    Effect.gen(function* () {
      const { deleted, remove, set } = yield* counted
      yield* remove(keysFrom(0, most + 1))
      // One that was deleted is there again.
      yield* set(keysFrom(0, 1))
      assert.deepStrictEqual(yield* deleted, { count: 1020 - most - 1, kept: 1 })
    })
  )

  it.scoped("holds no more written keys than it may", () =>
    Effect.gen(function* () {
      const { deleted, set } = yield* counted
      yield* set(keysFrom(0, most + 1))
      const { message } = yield* Effect.flip(deleted)
      assert.strictEqual(message, "More than 10 of the keys were written in the meantime")
    })
  )
})
