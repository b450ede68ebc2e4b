import { Duration, Effect, type Scope, Stream } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import * as Change from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import * as Entry from "../../../src/Kv/Entry.ts"
import { type Selection, Store } from "../../../src/Kv/Store.ts"
import type { DeleteOperation, Operation, Precondition, SetOperation } from "../../../src/Kv/Write.ts"
import type { Steps } from "../Steps.ts"

/** The time at the start of each test, in epoch milliseconds. */
export const start = 1_700_000_000_000

/** Registers one test, which gets a separate store. */
export type Check = (title: string, body: () => Steps<Store | ChangeLog | Scope.Scope>) => void

export const mebibyte = 1024 * 1024

/** The text of a value. */
export const json = (value: unknown): JsonText => JsonText(JSON.stringify(value))

interface SetOptions {
  readonly expiresAt?: number | null
  readonly precondition?: Precondition
}

/** A set of a value that is given as JSON text. */
export const set = (namespace: string, key: string, value: unknown, options: SetOptions = {}): SetOperation => ({
  op: "set",
  namespace,
  key,
  value: json(value),
  expiresAt: options.expiresAt ?? null,
  ...(options.precondition === undefined ? {} : { precondition: options.precondition })
})

export const del = (namespace: string, key: string, precondition?: Precondition): DeleteOperation => ({
  op: "delete",
  namespace,
  key,
  ...(precondition === undefined ? {} : { precondition })
})

/** Commits operations as one write. */
export const write = (operations: ReadonlyArray<Operation>, actor = "tester") =>
  Effect.flatMap(Store, store => store.commit({ operations, actor }))

export const put = (namespace: string, key: string, value: unknown, options?: SetOptions) =>
  write([set(namespace, key, value, options)])

export const remove = (namespace: string, key: string) => write([del(namespace, key)])

export const get = (namespace: string, key: string) => Effect.flatMap(Store, store => store.get(namespace, key))

export const lastSeq = Effect.flatMap(ChangeLog, log => log.lastSeq)

/** A part of a namespace. */
export interface Part {
  readonly namespace?: string | undefined
  readonly prefix?: string | undefined
}

export const read = (after: number, limit = 1000, tenant = "", part: Part = {}) =>
  Effect.flatMap(ChangeLog, log => log.read({ after, limit, tenant, ...part })).pipe(
    Effect.map(({ changes, lastSeq }) => ({ changes: changes.map(Change.decode), lastSeq }))
  )

/** All records after `after`, page by page. */
export const feed = (after = 0, limit = 1000, tenant = "", part: Part = {}) =>
  Effect.gen(function* () {
    const changes: Array<Change.StoredChange> = []
    for (let at = after; ; ) {
      const page = yield* read(at, limit, tenant, part)
      changes.push(...page.changes)
      if (page.lastSeq <= at) return changes
      at = page.lastSeq
    }
  })

export const list = (
  namespace: string,
  options: { readonly prefix?: string; readonly after?: string; readonly limit?: number } = {}
) =>
  Effect.map(
    Effect.flatMap(Store, store => store.list({ namespace, prefix: "", after: "", limit: 1000, ...options })),
    ({ epoch: _, ...page }) => ({ ...page, entries: page.entries.map(Entry.decode) })
  )

/** A whole list, portion by portion. */
export const listAll = (selection: Selection) =>
  Effect.map(
    Effect.flatMap(Store, store => store.listAll(selection)),
    ({ lastSeq, portions }) => ({ lastSeq, portions: Stream.map(portions, portion => portion.map(Entry.decode)) })
  )

/** The keys of a list, page by page. */
export const keys = (namespace: string, prefix = "", limit = 1000) =>
  Effect.gen(function* () {
    const found: Array<string> = []
    for (let after = ""; ; ) {
      const page = yield* list(namespace, { prefix, after, limit })
      found.push(...page.entries.map(entry => entry.key))
      if (!page.more) return found
      after = found.at(-1)!
    }
  })

/** Names in the order of lists: that of their bytes in UTF-8. */
export const inByteOrder = (names: ReadonlyArray<string>) =>
  [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))

/** Asks for expiry until nothing is left to expire, as a backend may work in portions. */
export const expireAll: Effect.Effect<number, unknown, ChangeLog> = Effect.gen(function* () {
  const log = yield* ChangeLog
  let total = 0
  for (let count = yield* log.expire; count > 0; count = yield* log.expire) total += count
  return total
})

/** Trims until nothing is left to trim, as a backend may work in portions. */
export const trimAll = (age: Duration.DurationInput): Effect.Effect<number, unknown, ChangeLog> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    let total = 0
    for (let count = yield* log.trim(Duration.decode(age)); count > 0; count = yield* log.trim(Duration.decode(age))) {
      total += count
    }
    return total
  })

/** The parts of a record that describe the change. */
export const outline = ({ op, key, version, actor }: Change.StoredChange) => `${op} ${key} ${version} ${actor}`

/** The parts of an entry that a list shows. */
export const sketch = ({ key, version, value }: Entry.StoredEntry) => `${key} ${version} ${value}`
