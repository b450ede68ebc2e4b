import { assert, layer } from "@effect/vitest"
import { Effect, Option, Redacted, Stream } from "effect"
import mimeTypes from "mime-db"
import * as Load from "../scripts/load/Load.ts"
import * as Client from "./service/Client.ts"
import * as Environment from "./service/Environment.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

const namespace = "tenant:iana/media-types"

/** Every type, whose name is the key, in byte order. */
const types = Object.entries(mimeTypes)
  .map(([key, value]) => ({ key, value }))
  .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)))

/** All of a service that clients can see of the types, each read in its own way. */
const everything = (service: Service.Running) =>
  Effect.gen(function* () {
    const client = yield* Client.make(service.url)
    const list = yield* client.entries(namespace)
    const single = yield* Effect.forEach(types, ({ key }) => client.existing(namespace, key), { concurrency: 16 })
    const polled = yield* client.poll(0)
    const events = yield* client.events(0).pipe(Stream.take(polled.length), Stream.runCollect)
    return { list, single, polled, events: [...events] }
  })

layer(Environment.layer, { excludeTestServices: true })("the service, with all of mime-db in it", it => {
  it.scoped("returns every entry and change as it was written, also after kill -9, and continues", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory

      const before = yield* Effect.scoped(
        Effect.gen(function* () {
          const service = yield* Service.start({ directory })
          let progress = 0
          const summary = yield* Load.load({
            entries: types,
            url: service.url,
            key: Redacted.make(Service.key),
            namespace,
            actor: "load",
            concurrency: 4,
            bounds: { operations: 100 },
            onProgress: by =>
              Effect.sync(() => {
                progress += by
              })
          })
          assert.strictEqual(summary.entries, types.length)
          assert.strictEqual(summary.batches, Math.ceil(types.length / 100))
          assert.strictEqual(progress, types.length)
          const all = yield* everything(service)
          yield* service.end("SIGKILL")
          return all
        })
      )
      const expected = types.map(({ key, value }) => ({ namespace, key, value, version: 1, updatedBy: "load" }))
      assert.deepStrictEqual(
        before.list.map(({ updatedAt, expiresAt, ...entry }) => entry),
        expected
      )
      assert.deepStrictEqual(before.single, before.list)
      assert.deepStrictEqual(
        before.polled.map(({ seq }) => seq),
        types.map((_, index) => index + 1)
      )
      assert.deepStrictEqual(before.events, before.polled)
      assert.isTrue(before.polled.every(({ tenantId }) => tenantId === "iana"))
      const byKey = new Map(before.polled.map(change => [change.key, change]))
      assert.deepStrictEqual(
        types.map(({ key }) => ({ key, value: byKey.get(key)?.value })),
        types
      )

      const service = yield* Service.start({ directory })
      assert.deepStrictEqual(yield* everything(service), before)

      const client = yield* Client.make(service.url)
      const end = types.length
      const key = "application/json"
      const set = (value: string) => Client.once(options => client.set(namespace, key, value, options))
      assert.strictEqual((yield* set("next")).version, 2)
      assert.isTrue(yield* Client.once(options => client.delete(namespace, key, { actor: "x", ...options })))
      assert.strictEqual((yield* set("again")).version, 4)
      const resumed = yield* client.follow({ after: end }).pipe(
        Stream.filterMap(event => (event.type === "change" ? Option.some(event.change) : Option.none())),
        Stream.take(3),
        Stream.runCollect
      )
      assert.deepStrictEqual(
        [...resumed].map(({ seq, op, version }) => ({ seq, op, version })),
        [
          { seq: end + 1, op: "set", version: 2 },
          { seq: end + 2, op: "delete", version: 3 },
          { seq: end + 3, op: "set", version: 4 }
        ]
      )
      assert.deepStrictEqual(yield* client.poll(end), [...resumed])
    })
  )
})
