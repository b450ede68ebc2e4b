import { expect } from "@effect/vitest"
import { Effect } from "effect"
import * as TestClock from "effect/TestClock"
import { type NamespaceQuery, Store } from "../../../src/Kv/Store.ts"
import { type Check, del, expireAll, put, remove, set, start, trimAll, write } from "./Fixture.ts"

const page = (query: Partial<NamespaceQuery> = {}) =>
  Effect.flatMap(Store, store => store.namespaces({ prefix: "", after: "", limit: 1000, tenant: "", ...query }))

/** The namespaces of a page with their counts, as one text each. */
const counts = (query?: Partial<NamespaceQuery>) =>
  Effect.map(page(query), ({ namespaces }) => namespaces.map(({ count, namespace }) => `${namespace} ${count}`))

const inByteOrder = (names: ReadonlyArray<string>) =>
  [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))

/** Namespaces and how many entries they have. */
export const namespaces = (check: Check) => {
  check("namespaces come in byte order with the numbers of their entries, page by page", () =>
    Effect.gen(function* () {
      expect(yield* page()).toMatchObject({ namespaces: [], lastSeq: 0, more: false })
      const names = ["n", "n/", "n\u0001", "N", "n%", "n_", "😀", "\uff5e", "\u{10ffff}", "\uffff", "é", "z"]
      yield* write(
        names.flatMap((name, index) => Array.from({ length: index + 1 }, (_, key) => set(name, `k${key}`, 1)))
      )
      const expected = inByteOrder(names).map(name => `${name} ${names.indexOf(name) + 1}`)
      expect(yield* counts()).toEqual(expected)
      expect((yield* page()).lastSeq).toBe(78)
      for (const prefix of ["n", "n%", "😀", "\u{10ffff}", "\ud83d", "none"]) {
        const wanted = expected.filter(text => text.startsWith(prefix) && prefix.isWellFormed())
        expect(yield* counts({ prefix }), prefix).toEqual(wanted)
        for (const limit of [1, 2, 5]) {
          const seen: Array<string> = []
          for (let after = "", more = true; more; ) {
            const { namespaces, ...rest } = yield* page({ prefix, after, limit })
            expect(namespaces.length).toBeLessThanOrEqual(limit)
            seen.push(...namespaces.map(({ count, namespace }) => `${namespace} ${count}`))
            after = namespaces.at(-1)?.namespace ?? ""
            more = rest.more
          }
          expect(seen, prefix).toEqual(wanted)
        }
      }
      expect(yield* counts({ after: "n_" })).toEqual(expected.slice(expected.indexOf("n_ 6") + 1))
      expect(yield* counts({ after: "nothing" })).toEqual(expected.slice(expected.indexOf("z 12")))
    })
  )

  check("the numbers follow every kind of write", () =>
    Effect.gen(function* () {
      yield* put("n", "a", 1)
      yield* put("n", "a", 2)
      yield* write([set("n", "b", 1), set("m", "b", 1), set("n", "b", 2), del("n", "absent")])
      expect(yield* counts()).toEqual(["m 1", "n 2"])
      // A write that is refused counts nothing, and the others of its group do.
      const refused = write([set("n", "c", 1), set("n", "d", 1, { precondition: { match: "any" } })])
      const all = yield* Effect.all([Effect.either(refused), put("n", "e", 1)], { concurrency: "unbounded" })
      expect(all[0]._tag).toBe("Left")
      expect(yield* counts()).toEqual(["m 1", "n 3"])
      yield* write([set("n", "f", 1), del("n", "f"), del("n", "a"), set("n", "a", 3), del("n", "b")])
      expect(yield* counts()).toEqual(["m 1", "n 2"])
      yield* remove("m", "b")
      expect(yield* counts()).toEqual(["n 2"])
      yield* put("m", "b", 1)
      yield* trimAll(0)
      expect(yield* counts()).toEqual(["m 1", "n 2"])
    })
  )

  check("an entry that has expired is not counted, before it is removed and after", () =>
    Effect.gen(function* () {
      yield* put("n", "a", 1, { expiresAt: start + 10 })
      yield* put("n", "b", 1)
      yield* put("m", "a", 1, { expiresAt: start + 10 })
      yield* put("z", "a", 1)
      yield* TestClock.setTime(start + 10)
      expect(yield* counts()).toEqual(["n 1", "z 1"])
      expect(yield* page({ limit: 1 })).toMatchObject({ namespaces: [{ namespace: "n", count: 1 }], more: true })
      // Its own expiry is recorded before it is set again.
      yield* put("m", "a", 2)
      expect(yield* counts()).toEqual(["m 1", "n 1", "z 1"])
      yield* expireAll
      expect(yield* counts()).toEqual(["m 1", "n 1", "z 1"])
    })
  )

  check("a tenant has its own namespaces alone", () =>
    Effect.gen(function* () {
      const own = ["tenant:a", "tenant:a/", "tenant:a/x", "tenant:a/\u{10ffff}"]
      const others = [
        "tenant:",
        "tenant:a!",
        "tenant:a-b/x",
        "tenant:a.",
        "tenant:a0",
        "tenant:aa/x",
        "tenant:b",
        "a",
        "z"
      ]
      yield* write([...own, ...others].map(name => set(name, "k", 1)))
      const seen = (query: Partial<NamespaceQuery>) =>
        Effect.map(page({ tenant: "a", ...query }), ({ namespaces }) => namespaces.map(({ namespace }) => namespace))
      expect(yield* seen({})).toEqual(own)
      expect(yield* seen({ prefix: "tenant:a/" })).toEqual(own.slice(1))
      expect(yield* seen({ prefix: "tenant:b" })).toEqual([])
      expect(yield* seen({ prefix: "t" })).toEqual(own)
      expect(yield* seen({ after: "tenant:a", limit: 2 })).toEqual(own.slice(1, 3))
      expect((yield* page({ tenant: "a", limit: 1 })).more).toBe(true)
      expect((yield* page({ tenant: "a", limit: 4 })).more).toBe(false)
      expect(yield* seen({ tenant: "none" })).toEqual([])
    })
  )
}
