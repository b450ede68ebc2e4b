/** The list of keys: pages and changes in any order end with the keys of the store. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import type { Change, EntryKey } from "../../src/Client/Client.ts"
import { ListedKeys } from "../../src/Console/Store/ListedKeys.ts"

/** A namespace and its change log. */
class Namespace {
  readonly log: Array<Change> = []
  readonly #entries = new Map<string, EntryKey>()
  readonly #versions = new Map<string, number>()

  get keys(): ReadonlyArray<string> {
    return [...this.#entries.keys()].sort()
  }

  write(op: "set" | "delete", key: string): void {
    if (op === "delete" && !this.#entries.has(key)) return
    const seq = this.log.length + 1
    const version = (this.#versions.get(key) ?? 0) + 1
    this.#versions.set(key, version)
    const entry = { namespace: "n", key, version, updatedBy: "a", updatedAt: seq, expiresAt: null }
    if (op === "set") this.#entries.set(key, entry)
    else this.#entries.delete(key)
    this.log.push({ seq, op, namespace: "n", key, value: null, version, actor: "a", timestamp: seq, tenantId: "" })
  }

  /** A page of the keys after another one. The first page has their number. */
  page(after: string | undefined, size: number) {
    const keys = this.keys.filter(key => after === undefined || key > after)
    const items = keys.slice(0, size).map(key => this.#entries.get(key)!)
    const page = { items, lastSeq: this.log.length, epoch: "e" }
    return {
      page: after === undefined ? { ...page, count: keys.length } : page,
      isLast: keys.length <= size
    }
  }
}

const size = 2
const keyOf = (index: number) => `k${String(index).padStart(2, "0")}`

/** A write, a change that is received, a request for a page, or its answer that is received. */
const steps = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ op: fc.constantFrom("set" as const, "delete" as const), key: fc.nat(7).map(keyOf) })
    },
    { weight: 4, arbitrary: fc.constant("change" as const) },
    { weight: 2, arbitrary: fc.constant("ask" as const) },
    { weight: 2, arbitrary: fc.constant("answer" as const) }
  ),
  { maxLength: 200 }
)

describe("The list of keys", () => {
  it("has all keys of the namespace at its end, in any order of writes, changes and pages", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(7).map(keyOf)), steps, (before, steps) => {
        const store = new Namespace()
        for (const key of before) store.write("set", key)
        const list = new ListedKeys()
        let seen = store.log.length
        let after: string | undefined
        let asked: ReturnType<Namespace["page"]> | undefined
        const arrive = () => {
          const change = store.log[seen]
          if (change === undefined) return
          seen++
          list.apply(change)
        }
        const ask = () => {
          if (asked !== undefined || list.isComplete) return
          list.expectPage()
          asked = store.page(after, size)
        }
        const answer = () => {
          if (asked === undefined) return
          after = asked.page.items.at(-1)?.key ?? after
          list.add(asked.page, asked.isLast)
          asked = undefined
        }
        for (const step of steps) {
          if (step === "change") arrive()
          else if (step === "ask") ask()
          else if (step === "answer") answer()
          else store.write(step.op, step.key)
        }
        answer()
        while (seen < store.log.length) arrive()
        // No key was deleted before the list followed the changes.
        if (list.total !== undefined) assert.strictEqual(list.total, store.keys.length, "before the end")
        while (!list.isComplete) {
          ask()
          answer()
        }
        assert.deepStrictEqual(
          list.items.map(({ key }) => key),
          store.keys
        )
        assert.strictEqual(list.total, store.keys.length)
      }),
      { numRuns: 5000 }
    )
  })

  it("keeps a key that was set again before its page was read, when the change that deleted it arrives", () => {
    const store = new Namespace()
    for (const op of ["set", "delete", "set"] as const) store.write(op, keyOf(0))
    const list = new ListedKeys()
    list.expectPage()
    const { isLast, page } = store.page(undefined, size)
    list.add(page, isLast)
    list.apply(store.log[1]!)
    assert.deepStrictEqual(list.items, page.items)
  })

  it("does not count a set as a new key if the page was read after the key was deleted again", () => {
    const store = new Namespace()
    for (let index = 0; index < 6; index++) store.write("set", keyOf(index))
    const list = new ListedKeys()
    list.expectPage()
    const first = store.page(undefined, size)
    list.add(first.page, first.isLast)
    store.write("set", keyOf(3))
    store.write("delete", keyOf(3))
    list.expectPage()
    const second = store.page(keyOf(1), size)
    list.add(second.page, second.isLast)
    for (const change of store.log.slice(6)) list.apply(change)
    assert.strictEqual(list.total, 5)
  })
})
