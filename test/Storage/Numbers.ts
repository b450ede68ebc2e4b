/**
 * What a store may hold, and the numbers of its namespaces and tenants.
 */
import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { tenantOf } from "../../src/Kv/Entry.ts"
import { Store } from "../../src/Kv/Store.ts"
import { del, set, write } from "../suites/Store/Fixture.ts"

export interface Row {
  readonly namespace: string
  readonly key: string
  readonly expiresAt: number | null
}

/** Epoch milliseconds at which entries have expired, and at which others will. */
const past = 1
const future = 4_000_000_000_000

const names: ReadonlyArray<string> = [
  ...["n", "Tenant:a/x", "tenant", "tenant:", "tenant:/", "tenant:/x", "tenant:a", "tenant:a/", "tenant:a/x"],
  ...["tenant:a/x/y", "tenant:a-b/x", "tenant:*", "tenant:[a]/x", "tenant:ä/é", "tenant:😀/😀", "tenant:%/_", "it's"],
  ...Array.from({ length: 1100 }, (_, index) => `tenant:t${index % 200}/area-${index}`),
  ...Array.from({ length: 60 }, (_, index) => `plain-${index}`)
]

/** One to four in each namespace. In some of these all have expired, and so in one tenant. */
export const entries: ReadonlyArray<Row> = [
  ...names.flatMap((namespace, index) =>
    Array.from({ length: 1 + (index % 4) }, (_, key) => ({
      namespace,
      key: `k${key}`,
      expiresAt: (index + key) % 5 === 0 ? past : (index + key) % 7 === 0 ? future : null
    }))
  ),
  ...["a", "b"].map(key => ({ namespace: "tenant:over/x", key, expiresAt: past }))
]

/** Keys that were deleted, in namespaces with and without entries. */
export const tombstones: ReadonlyArray<{ readonly namespace: string; readonly key: string }> = [
  ...names.filter((_, index) => index % 3 === 0),
  "tenant:left/x",
  "tenant:left/y",
  "left"
].map(namespace => ({ namespace, key: "deleted" }))

/** By namespace its entries; by tenant its namespaces and entries. */
export interface Numbers {
  readonly namespaces: ReadonlyArray<readonly [namespace: string, entries: number]>
  readonly tenants: ReadonlyArray<readonly [tenant: string, namespaces: number, entries: number]>
}

const byBytes = (a: readonly [string, ...unknown[]], b: readonly [string, ...unknown[]]): number =>
  Buffer.compare(Buffer.from(a[0]), Buffer.from(b[0]))

/** Counts rows of `entries`, by their namespaces. */
export const numbersOf = (rows: ReadonlyArray<{ readonly namespace: string }>): Numbers => {
  const namespaces = new Map<string, number>()
  for (const { namespace } of rows) namespaces.set(namespace, (namespaces.get(namespace) ?? 0) + 1)
  const tenants = new Map<string, readonly [namespaces: number, entries: number]>()
  for (const [namespace, count] of namespaces) {
    const [others, entries] = tenants.get(tenantOf(namespace)) ?? [0, 0]
    tenants.set(tenantOf(namespace), [others + 1, entries + count])
  }
  return {
    namespaces: [...namespaces].sort(byBytes),
    tenants: [...tenants].map(([tenant, numbers]) => [tenant, ...numbers] as const).sort(byBytes)
  }
}

/** What the tables of a database hold. */
export interface Tables extends Numbers {
  readonly entries: ReadonlyArray<{ readonly namespace: string }>
}

/** Expects the stored numbers to be those of a count. */
export const expectCounted = ({ entries, namespaces, tenants }: Tables): void => {
  expect({
    namespaces: [...namespaces].sort(byBytes),
    tenants: [...tenants].sort(byBytes)
  }).toEqual(numbersOf(entries))
}

/** The numbers as readers see them, page by page. */
const shown = Effect.gen(function* () {
  const store = yield* Store
  const namespaces: Array<Numbers["namespaces"][number]> = []
  for (let after = "", more = true; more; ) {
    const page = yield* store.namespaces({ prefix: "", after, limit: 1000, tenant: "" })
    namespaces.push(...page.namespaces.map(({ count, namespace }) => [namespace, count] as const))
    after = page.namespaces.at(-1)?.namespace ?? ""
    more = page.more
  }
  const { tenants } = yield* store.tenants({ prefix: "", limit: 1000, tenant: "" })
  return { namespaces, tenants: tenants.map(({ entries, namespaces, tenant }) => [tenant, namespaces, entries]) }
})

/** Expects readers to see the numbers of the entries above, without expired ones. */
export const expectShown = Effect.gen(function* () {
  expect(yield* shown).toEqual(numbersOf(entries.filter(({ expiresAt }) => expiresAt !== past)))
})

/** Adds entries and namespaces, deletes some with all their entries, and deletes expired entries. */
export const change = Effect.gen(function* () {
  const left = new Set(names.filter((_, index) => index % 3 === 0))
  const operations = [
    ...entries.filter(({ namespace }) => left.has(namespace)).map(({ key, namespace }) => del(namespace, key)),
    ...names.filter((_, index) => index % 2 === 0).map(namespace => set(namespace, "later", 1)),
    ...tombstones.map(({ key, namespace }) => set(namespace, key, 1)),
    set("tenant:new/x", "k", 1)
  ]
  // A commit has a time limit.
  for (let from = 0; from < operations.length; from += 200) yield* write(operations.slice(from, from + 200))
  yield* Effect.flatMap(ChangeLog, log => log.expire)
})
