import { expect } from "@effect/vitest"
import { Effect } from "effect"
import * as TestClock from "effect/TestClock"
import { type NamespaceQuery, Store, type TenantQuery } from "../../../src/Kv/Store.ts"
import { type Check, inByteOrder, put, set, start, write } from "./Fixture.ts"

const page = (query: Partial<NamespaceQuery> = {}) =>
  Effect.flatMap(Store, store => store.namespaces({ prefix: "", after: "", limit: 1000, tenant: "", ...query }))

/** The namespaces of a page with their counts, as one text each. */
const counts = (query?: Partial<NamespaceQuery>) =>
  Effect.map(page(query), ({ namespaces }) => namespaces.map(({ count, namespace }) => `${namespace} ${count}`))

const tenantPage = (query: Partial<TenantQuery> = {}) =>
  Effect.flatMap(Store, store => store.tenants({ prefix: "", limit: 1000, tenant: "", ...query }))

/** The tenants of a page with the numbers of their namespaces and entries, as one text each. */
const tenantCounts = (query?: Partial<TenantQuery>) =>
  Effect.map(tenantPage(query), ({ tenants }) =>
    tenants.map(({ entries, namespaces, tenant }) => `${tenant} ${namespaces} ${entries}`)
  )

/** Namespaces and how many entries they have. */
export const namespaces = (check: Check) => {
  check("namespaces come in byte order with the numbers of their entries, page by page", function* () {
    expect(yield* page()).toMatchObject({ namespaces: [], lastSeq: 0, more: false })
    const names = ["n", "n/", "n\u0001", "N", "n%", "n_", "😀", "\uff5e", "\u{10ffff}", "\uffff", "é", "z"]
    yield* write(names.flatMap((name, index) => Array.from({ length: index + 1 }, (_, key) => set(name, `k${key}`, 1))))
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

  check("a write that is refused counts nothing, and the others of its group do", function* () {
    const refused = write([set("tenant:d/x", "c", 1), set("n", "d", 1, { precondition: { match: "any" } })])
    const all = yield* Effect.all([Effect.either(refused), put("tenant:d/y", "e", 1)], { concurrency: "unbounded" })
    expect(all[0]._tag).toBe("Left")
    expect(yield* counts()).toEqual(["tenant:d/y 1"])
    expect(yield* tenantCounts()).toEqual(["d 1 1"])
  })

  check("a page does not have what has expired, and ends there", function* () {
    const due = { expiresAt: start + 10 }
    yield* write([set("n", "a", 1, due), set("n", "b", 1), set("tenant:a", "a", 1), set("tenant:b", "a", 1, due)])
    yield* put("m", "a", 1, due)
    yield* TestClock.setTime(start + 10)
    expect(yield* page({ limit: 1 })).toMatchObject({ namespaces: [{ namespace: "n", count: 1 }], more: true })
    expect(yield* page({ limit: 2 })).toMatchObject({ more: false })
    expect(yield* tenantPage({ limit: 1 })).toMatchObject({ tenants: [{ tenant: "", entries: 1 }], more: true })
    expect(yield* tenantPage({ limit: 2 })).toMatchObject({ more: false })
  })

  check("a tenant has only its own namespaces", function* () {
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
    expect(yield* seen({ isWithoutTenant: true })).toEqual([])
  })

  check("the namespaces of no tenant, page by page", function* () {
    const own = ["a", "tenant", "tenant!", "tenant/x", "tenant:", "tenant:/", "tenant:/x", "tenant;", "z", "\u{10ffff}"]
    const others = ["tenant:!", "tenant:.", "tenant:0", "tenant:a", "tenant:a/x", "tenant:\u{10ffff}"]
    yield* write([...own, ...others].map(name => set(name, "k", 1)))
    const seen = (query: Partial<NamespaceQuery>) =>
      Effect.map(page({ isWithoutTenant: true, ...query }), ({ more, namespaces }) => [
        more,
        ...namespaces.map(({ namespace }) => namespace)
      ])
    expect(yield* seen({})).toEqual([false, ...own])
    expect(yield* seen({ prefix: "tenant:" })).toEqual([false, ...own.slice(4, 7)])
    expect(yield* seen({ prefix: "tenant:a" })).toEqual([false])
    for (let limit = 1; limit <= own.length; limit++) {
      for (let start = 0; start <= own.length; start++) {
        const isMore = start + limit < own.length
        const expected = [isMore, ...own.slice(start, start + limit)]
        expect(yield* seen({ limit, after: own[start - 1] ?? "" }), `${start} ${limit}`).toEqual(expected)
      }
    }
  })

  check("tenants come in byte order with the numbers of their namespaces and entries, page by page", function* () {
    expect(yield* tenantPage()).toMatchObject({ tenants: [], lastSeq: 0, more: false })
    const ids = ["a", "a!", "a-b", "a%", "A", "ab", "b", "é", "\uff5e", "😀", "\u{10ffff}"]
    // The namespace of the tenant itself, and its other namespaces after those of tenants whose ids have the same
    // prefix.
    const names = ids.flatMap((id, index) =>
      Array.from({ length: index + 1 }, (_, n) => (n === 0 ? `tenant:${id}` : `tenant:${id}/${n}`))
    )
    yield* write([...names, "tenant:/x", "plain"].flatMap(name => [set(name, "k", 1), set(name, "l", 1)]))
    const expected = [" 2 4", ...inByteOrder(ids).map(id => `${id} ${ids.indexOf(id) + 1} ${2 * ids.indexOf(id) + 2}`)]
    expect(yield* tenantCounts()).toEqual(expected)
    expect((yield* tenantPage()).lastSeq).toBe(2 * (names.length + 2))
    for (const prefix of ["", "a", "a%", "😀", "\u{10ffff}", "\ud83d", "a/", "none"]) {
      const wanted = expected.filter(text => text.startsWith(prefix) && prefix.isWellFormed())
      expect(yield* tenantCounts({ prefix }), prefix).toEqual(wanted)
      for (const limit of [1, 2, 5]) {
        const seen: Array<string> = []
        let after: { readonly after?: string } = {}
        for (let more = true; more; ) {
          const { tenants, ...rest } = yield* tenantPage({ prefix, limit, ...after })
          expect(tenants.length).toBeLessThanOrEqual(limit)
          seen.push(...tenants.map(({ entries, namespaces, tenant }) => `${tenant} ${namespaces} ${entries}`))
          after = { after: tenants.at(-1)?.tenant ?? "" }
          more = rest.more
        }
        expect(seen, prefix).toEqual(wanted)
      }
    }
    expect(yield* tenantCounts({ tenant: "a" })).toEqual(["a 1 2"])
    expect(yield* tenantCounts({ tenant: "a", prefix: "a" })).toEqual(["a 1 2"])
    expect(yield* tenantCounts({ tenant: "a", prefix: "ab" })).toEqual([])
    expect(yield* tenantCounts({ tenant: "a", after: "a" })).toEqual([])
    expect(yield* tenantCounts({ tenant: "none" })).toEqual([])
  })
}
