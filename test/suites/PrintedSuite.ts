import { describe, expect, it } from "@effect/vitest"
import { Effect, type Layer, Option } from "effect"
import * as TestClock from "effect/TestClock"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import * as Change from "../../src/Kv/Change.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import * as Entry from "../../src/Kv/Entry.ts"
import { Store } from "../../src/Kv/Store.ts"
import { type Check, put, remove, set, start, trimAll, write } from "./Store/Fixture.ts"

const names = [
  "a",
  'quote " and \\ backslash',
  "tab\tline\nreturn\rbell\u0007delete\u007f",
  "%s %d %%",
  "\u2028ü𝄞",
  "z"
]
const texts = [
  "null",
  "0",
  "-1.5e300",
  "12345678901234567890",
  '"%s \\ud800 \\u0000 \\n"',
  '{"__proto__":[1,{}],"b":"é𝄞"}'
]
const spaces = ["n", "tenant:t/x", 'tenant:%s"\\/x']

/** The results of reads: the database must print the same text as `encode`. */
const expectSame = Effect.gen(function* () {
  const store = yield* Store
  const log = yield* ChangeLog
  const lastSeq = yield* log.lastSeq
  for (const tenant of ["", "t", '%s"\\', "nobody"]) {
    for (const after of [0, 7, Math.max(0, lastSeq - 1), lastSeq + 1]) {
      for (const limit of [3, 1000]) {
        const page = yield* Effect.either(log.read({ after, limit, tenant }))
        if (page._tag === "Left") continue
        for (const change of page.right.changes) {
          const decoded = Change.decode(change)
          expect(Change.encode(decoded).json).toBe(change.json)
          expect([change.seq, change.tenant]).toEqual([decoded.seq, Entry.tenantOf(decoded.namespace)])
        }
      }
    }
  }
  for (const namespace of spaces) {
    for (const query of [{}, { prefix: "quote" }, { after: "tab", limit: 2 }, { limit: 2 }]) {
      for (const isDescending of [false, true]) {
        const { entries } = yield* store.list({ namespace, prefix: "", after: "", limit: 1000, isDescending, ...query })
        for (const entry of entries) {
          const decoded = Entry.decode(entry)
          expect([entry.json, entry.key]).toEqual([Entry.encode(decoded).json, decoded.key])
          if (query.limit === undefined) expect(yield* store.get(namespace, entry.key)).toEqual(Option.some(decoded))
        }
      }
    }
  }
})

/** The conformance suite of backends that print entries and records themselves. Each test builds a new `layer`. */
export const printedSuite = (name: string, layer: Layer.Layer<Store | ChangeLog, unknown>): void => {
  const check: Check = (title, body) => it.scoped(title, () => Effect.provide(Effect.gen(body), layer))

  describe(`what ${name} prints`, () => {
    check("is the text that JavaScript prints of the rows", function* () {
      yield* TestClock.setTime(start)
      yield* expectSame
      for (const namespace of spaces) {
        for (const [index, key] of names.entries()) {
          yield* write([{ ...set(namespace, key, null), value: JsonText(texts[index]!) }], names[index])
        }
        yield* put(namespace, "gone", 1)
        yield* remove(namespace, "gone")
        yield* put(namespace, "soon", 1, { expiresAt: start + 1000 })
        yield* put(namespace, "later", 1, { expiresAt: start + 5000 })
      }
      yield* expectSame
      yield* TestClock.adjust("2 seconds")
      yield* expectSame
      for (const namespace of spaces) for (const key of names) yield* put(namespace, key, 2)
      yield* trimAll("1 second")
      yield* expectSame
    })

    check("is of one history until records are removed", function* () {
      yield* TestClock.setTime(start)
      const { expire, history } = yield* ChangeLog
      const before = yield* history
      yield* put("n", "k", 1)
      yield* put("n", "k", 2, { expiresAt: start + 1 })
      yield* TestClock.adjust("1 minute")
      expect(yield* expire).toBe(1)
      expect(yield* trimAll("1 hour")).toBe(0)
      expect(yield* history).toBe(before)
      expect(yield* trimAll("1 second")).toBe(2)
      expect(yield* history).not.toBe(before)
    })
  })
}
