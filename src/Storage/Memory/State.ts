/**
 * What a store in memory holds.
 */
import { Either } from "effect"
import * as Change from "../../Kv/Change.ts"
import { type ChangePage, type ChangeQuery, type Due, HistoryTrimmed, selects } from "../../Kv/ChangeLog.ts"
import * as Entry from "../../Kv/Entry.ts"
import * as Idempotency from "../../Kv/Idempotency.ts"
import type { Found } from "../../Kv/IdempotencyShares.ts"
import {
  type Address,
  EntriesTooLarge,
  IdempotencyConflict,
  type ListPage,
  type ListQuery,
  type NamespaceCount,
  type NamespacePage,
  type NamespaceQuery,
  PreconditionFailed,
  pageBytes,
  type Selection,
  type TenantPage,
  type TenantQuery,
  type WholeListQuery
} from "../../Kv/Store.ts"
import {
  type Committed,
  committed,
  isLive,
  type KeyState,
  plan,
  type Removal,
  removing,
  type Step,
  type Write
} from "../../Kv/Write.ts"
import * as KeyOrder from "../KeyOrder.ts"
import { LastSeq } from "../LastSeq.ts"
import { IdempotencyRecords } from "./IdempotencyRecords.ts"
import * as Namespaces from "./Namespaces.ts"

/** What is known of one key: its entry, or only the tombstone that keeps its version. */
interface Slot {
  readonly entry: Entry.StoredEntry | undefined
  readonly version: number
  /** The newest change record of the key. */
  readonly seq: number
}

interface Namespace {
  readonly slots: Map<string, Slot>
  /** The keys that have an entry, in byte order of UTF-8. */
  readonly sorted: Array<string>
}

/** The first index whose key does not come before `key`, or with `past` the first whose key comes after it. */
const search = (sorted: ReadonlyArray<string>, key: string, past = false): number => {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const order = KeyOrder.compare(sorted[middle]!, key)
    if (order < 0 || (past && order === 0)) low = middle + 1
    else high = middle
  }
  return low
}

/** Takes items from the front while they fit in a page of so many bytes; always at least one where there is one. */
export const takePage = <A extends { readonly value: string | null }>(
  items: Iterable<A>,
  limit: number,
  maxBytes = pageBytes
): { readonly page: ReadonlyArray<A>; readonly more: boolean } => {
  const page: Array<A> = []
  let bytes = 0
  for (const item of items) {
    bytes += item.value === null ? 0 : Buffer.byteLength(item.value)
    if (page.length > 0 && (page.length >= limit || bytes > maxBytes)) return { page, more: true }
    page.push(item)
  }
  return { page, more: false }
}

/** All that a store holds. Each method runs to its end at once, and so is atomic. */
export class State {
  private readonly namespaces = new Map<string, Namespace>()
  private readonly expiring = new Map<string, Entry.StoredEntry>()
  private changes: Array<Change.StoredChange> = []
  readonly end = new LastSeq()
  /** How often records were removed. */
  trims = 0
  private readonly idempotencyRecords: IdempotencyRecords

  constructor(
    readonly epoch: string,
    idempotencyBytes: number,
    /** Told what was found where tenants were compared. */
    private readonly onFound: (found: Found) => void
  ) {
    this.idempotencyRecords = new IdempotencyRecords(idempotencyBytes)
  }

  get lastSeq(): number {
    return this.changes.at(-1)?.seq ?? 0
  }

  get(namespace: string, key: string, now: number): Entry.StoredEntry | undefined {
    const entry = this.namespaces.get(namespace)?.slots.get(key)?.entry
    return entry !== undefined && isVisible(entry, now) ? entry : undefined
  }

  getMany(addresses: ReadonlyArray<Address>, maxBytes: number, keysOnly: boolean, now: number) {
    let bytes = 0
    const encode = encoderOf({ keysOnly })
    const entries: Array<Entry.EncodedEntry | undefined> = []
    for (const { key, namespace } of addresses) {
      const entry = this.get(namespace, key, now)
      bytes += entry === undefined || keysOnly ? 0 : Buffer.byteLength(entry.value)
      if (bytes > maxBytes) return Either.left(new EntriesTooLarge({ limitBytes: maxBytes }))
      entries.push(entry && encode(entry))
    }
    return Either.right({ entries, lastSeq: this.lastSeq, epoch: this.epoch })
  }

  list(query: ListQuery, now: number): ListPage {
    const { after, isCounted = false, isDescending = false, limit } = query
    const { page, more } = takePage(this.select(query, after, isDescending, now), limit, bytesOf(query))
    const count = isCounted ? { count: this.count(query, now) } : {}
    return { entries: page.map(encoderOf(query)), lastSeq: this.lastSeq, epoch: this.epoch, more, ...count }
  }

  count(selection: Selection, now: number): number {
    let count = 0
    for (const _ of this.select(selection, "", false, now)) count++
    return count
  }

  listNamespaces(query: NamespaceQuery, now: number): NamespacePage {
    const { epoch, lastSeq } = this
    return { ...Namespaces.page(this.countNamespaces(now), query), lastSeq, epoch }
  }

  listTenants(query: TenantQuery, now: number): TenantPage {
    const { epoch, lastSeq } = this
    return { ...Namespaces.pageOfTenants(this.countNamespaces(now), query), lastSeq, epoch }
  }

  /** The namespaces that have entries, in any order. */
  private countNamespaces(now: number): ReadonlyArray<NamespaceCount> {
    const due = this.dueOf(now)
    return [...this.namespaces]
      .map(([namespace, { sorted }]) => ({ namespace, count: sorted.length - (due.get(namespace) ?? 0) }))
      .filter(({ count }) => count > 0)
  }

  /** How many entries of each namespace have expired and are still stored. */
  private dueOf(now: number): ReadonlyMap<string, number> {
    const counts = new Map<string, number>()
    for (const entry of this.expiring.values()) {
      if (!isVisible(entry, now)) counts.set(entry.namespace, (counts.get(entry.namespace) ?? 0) + 1)
    }
    return counts
  }

  /** The visible entries of a selection that come after `after` in its order. */
  *select(selection: Selection, after: string, isDescending: boolean, now: number) {
    const space = this.namespaces.get(selection.namespace)
    const range = KeyOrder.rangeOf(selection)
    if (space === undefined || range === undefined) return
    const { slots, sorted } = space
    let low = search(sorted, range.low)
    let high = range.high === undefined ? sorted.length : search(sorted, range.high)
    if (after !== "" && isDescending) high = Math.min(high, search(sorted, after))
    else if (after !== "") low = Math.max(low, search(sorted, after, true))
    while (low < high) {
      const entry = slots.get(sorted[isDescending ? --high : low++]!)?.entry
      if (entry !== undefined && isVisible(entry, now)) yield entry
    }
  }

  commit(write: Write, now: number): Either.Either<Committed, PreconditionFailed | IdempotencyConflict> {
    const key = write.idempotencyKey
    if (key === undefined) return this.apply(write, now)
    const found = this.idempotencyRecords.find(key.id, now)
    if (found === undefined) {
      return Either.map(this.apply(write, now), applied => {
        const found = this.idempotencyRecords.keep(key, Idempotency.encode(write, applied), now)
        if (found !== undefined) this.onFound(found)
        return applied
      })
    }
    return found.digest === key.digest
      ? Either.right(committed(write, Idempotency.decode(write, found.kept)))
      : Either.left(new IdempotencyConflict({ isInProgress: false }))
  }

  private apply(write: Write, now: number): Either.Either<Committed, PreconditionFailed> {
    if (write.removal !== undefined) return this.remove(write.removal, write.actor, now)
    return Either.mapBoth(
      plan(write, (namespace, key) => this.keyState(namespace, key), now),
      {
        onLeft: ({ currentVersion, index, isChangedBefore }) =>
          new PreconditionFailed({ currentVersion, index, isChangedBefore }),
        onRight: ({ steps, results }) => {
          const timestamp = this.append(steps, now)
          return committed(write, { results, timestamp, lastSeq: this.lastSeq })
        }
      }
    )
  }

  private remove(removal: Removal, actor: string, now: number): Either.Either<Committed, PreconditionFailed> {
    const keys: Array<string> = []
    for (const { key } of this.select(removal, "", false, now)) {
      if (keys.push(key) > removal.limit) break
    }
    const { more, write } = removing(removal, keys, actor)
    return Either.map(this.apply(write, now), committed => ({ ...committed, more }))
  }

  expire(now: number): number {
    const due = [...this.expiring.values()].filter(entry => !isVisible(entry, now))
    due.sort((a, b) => a.expiresAt! - b.expiresAt!)
    this.append(
      due.map(({ namespace, key, version }) => ({
        op: "delete",
        namespace,
        key,
        version: version + 1,
        actor: Entry.expiryActor
      })),
      now
    )
    return due.length
  }

  due(): Due {
    let expiresAt: number | null = null
    for (const entry of this.expiring.values()) expiresAt = Math.min(expiresAt ?? Infinity, entry.expiresAt!)
    return { expiresAt, oldestAt: this.changes.length > 1 ? this.changes[0]!.timestamp : null }
  }

  trim(before: number): number {
    const newest = this.changes.length - 1
    let count = 0
    while (count < newest && this.changes[count]!.timestamp < before) count++
    for (const { seq, namespace, key } of this.changes.slice(0, count)) {
      const space = this.namespaces.get(namespace)
      const slot = space?.slots.get(key)
      if (slot?.entry !== undefined || slot?.seq !== seq) continue
      space!.slots.delete(key)
      if (space!.slots.size === 0) this.namespaces.delete(namespace)
    }
    this.changes = this.changes.slice(count)
    if (count > 0) this.trims++
    return count
  }

  read(query: ChangeQuery): Either.Either<ChangePage, HistoryTrimmed> {
    const { after, limit } = query
    const lastSeq = this.lastSeq
    const trimmedSeq = (this.changes[0]?.seq ?? 1) - 1
    if (after < trimmedSeq) return Either.left(new HistoryTrimmed({ trimmedSeq, epoch: this.epoch }))
    const { page, more } = takePage(this.changesAfter(after - trimmedSeq, query), limit)
    return Either.right({
      changes: page.map(Change.encode),
      lastSeq: more ? page.at(-1)!.seq : lastSeq,
      epoch: this.epoch,
      isComplete: more || page.length === limit
    })
  }

  private *changesAfter(index: number, query: ChangeQuery): Generator<Change.StoredChange> {
    for (let i = index; i < this.changes.length; i++) {
      const change = this.changes[i]!
      const { key, namespace } = change
      if (selects(query, { key, namespace, tenant: Entry.tenantOf(namespace) })) yield change
    }
  }

  private keyState(namespace: string, key: string): KeyState | undefined {
    const slot = this.namespaces.get(namespace)?.slots.get(key)
    return (
      slot && { version: slot.version, present: slot.entry !== undefined, expiresAt: slot.entry?.expiresAt ?? null }
    )
  }

  /** Applies steps and records them, then tells who waits. Returns the records' timestamp. */
  private append(steps: ReadonlyArray<Step>, now: number): number {
    const timestamp = Math.max(now, this.changes.at(-1)?.timestamp ?? 0)
    for (const step of steps) {
      const { op, namespace, key, version, actor } = step
      const seq = this.lastSeq + 1
      const value = step.op === "set" ? step.value : null
      this.changes.push({ seq, op, namespace, key, value, version, actor, timestamp })
      this.place(namespace, key, {
        version,
        seq,
        entry:
          step.op === "set"
            ? {
                namespace,
                key,
                value: step.value,
                version,
                updatedBy: actor,
                updatedAt: timestamp,
                expiresAt: step.expiresAt
              }
            : undefined
      })
    }
    this.end.set(this.lastSeq)
    return timestamp
  }

  private place(namespace: string, key: string, slot: Slot): void {
    let space = this.namespaces.get(namespace)
    if (space === undefined) {
      space = { slots: new Map(), sorted: [] }
      this.namespaces.set(namespace, space)
    }
    const before = space.slots.get(key)?.entry
    space.slots.set(key, slot)
    if (before === undefined && slot.entry !== undefined) space.sorted.splice(search(space.sorted, key), 0, key)
    if (before !== undefined && slot.entry === undefined) space.sorted.splice(search(space.sorted, key), 1)
    // Names hold no U+0000, so that it tells the two apart.
    const id = `${namespace}\u0000${key}`
    if (slot.entry === undefined || slot.entry.expiresAt === null) this.expiring.delete(id)
    else this.expiring.set(id, slot.entry)
  }
}

const isVisible = (entry: Entry.StoredEntry, now: number): boolean =>
  isLive({ version: entry.version, present: true, expiresAt: entry.expiresAt }, now)

const bytesOf = ({ keysOnly = false }: WholeListQuery) => (keysOnly ? Number.POSITIVE_INFINITY : pageBytes)

/** How a list shows its entries. */
export const encoderOf = ({ keysOnly = false }: Pick<WholeListQuery, "keysOnly">) =>
  keysOnly ? Entry.encodeWithoutValue : Entry.encode
