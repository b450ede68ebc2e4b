/** The state of a store in memory: its entries, its change log, and its idempotency records. */
import { Either } from "effect"
import * as Change from "../../Kv/Change.ts"
import { type ChangePage, type ChangeQuery, type Due, HistoryTrimmed, selects } from "../../Kv/ChangeLog.ts"
import * as Entry from "../../Kv/Entry.ts"
import * as Idempotency from "../../Kv/Idempotency.ts"
import type { Comparison } from "../../Kv/IdempotencyShares.ts"
import {
  type Address,
  EntriesTooLarge,
  IdempotencyConflict,
  type ListPage,
  type ListQuery,
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
  type PrefixDelete,
  plan,
  type Step,
  type Write,
  writeOfPrefix
} from "../../Kv/Write.ts"
import { LastSeq } from "../Commit/StoreCommit.ts"
import { Entries, pageOfNamespaces, pageOfTenants } from "./Entries.ts"
import { IdempotencyRecords } from "./IdempotencyRecords.ts"

/** Takes items from the front while they fit in a page of `maxBytes`, but at least one. */
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

/** The whole state. Each method runs synchronously, and so is atomic. */
export class State {
  readonly entries = new Entries()
  private changes: Array<Change.StoredChange> = []
  readonly end = new LastSeq()
  trims = 0
  private readonly idempotencyRecords: IdempotencyRecords

  constructor(
    readonly epoch: string,
    idempotencyBytes: number,
    /** Called after each comparison of the tenants. */
    private readonly onComparison: (comparison: Comparison) => void
  ) {
    this.idempotencyRecords = new IdempotencyRecords(idempotencyBytes)
  }

  get lastSeq(): number {
    return this.changes.at(-1)?.seq ?? 0
  }

  getMany(addresses: ReadonlyArray<Address>, maxBytes: number, keysOnly: boolean, now: number) {
    let bytes = 0
    const encode = encoderOf({ keysOnly })
    const entries: Array<Entry.EncodedEntry | undefined> = []
    for (const { key, namespace } of addresses) {
      const entry = this.entries.get(namespace, key, now)
      bytes += entry === undefined || keysOnly ? 0 : Buffer.byteLength(entry.value)
      if (bytes > maxBytes) return Either.left(new EntriesTooLarge({ limitBytes: maxBytes }))
      entries.push(entry && encode(entry))
    }
    return Either.right({ entries, lastSeq: this.lastSeq, epoch: this.epoch })
  }

  list(query: ListQuery, now: number): ListPage {
    const { after, isCounted = false, isDescending = false, limit } = query
    const { page, more } = takePage(this.entries.select(query, after, isDescending, now), limit, bytesOf(query))
    const count = isCounted ? { count: this.count(query, now) } : {}
    return { entries: page.map(encoderOf(query)), lastSeq: this.lastSeq, epoch: this.epoch, more, ...count }
  }

  count(selection: Selection, now: number): number {
    let count = 0
    for (const _ of this.entries.select(selection, "", false, now)) count++
    return count
  }

  listNamespaces(query: NamespaceQuery, now: number): NamespacePage {
    const { epoch, lastSeq } = this
    return { ...pageOfNamespaces(this.entries.count(now), query), lastSeq, epoch }
  }

  listTenants(query: TenantQuery, now: number): TenantPage {
    const { epoch, lastSeq } = this
    return { ...pageOfTenants(this.entries.count(now), query), lastSeq, epoch }
  }

  commit(write: Write, now: number): Either.Either<Committed, PreconditionFailed | IdempotencyConflict> {
    const key = write.idempotencyKey
    if (key === undefined) return this.apply(write, now)
    const found = this.idempotencyRecords.find(key.id, now)
    if (found === undefined) {
      return Either.map(this.apply(write, now), applied => {
        const comparison = this.idempotencyRecords.keep(key, Idempotency.encode(write, applied), now)
        if (comparison !== undefined) this.onComparison(comparison)
        return applied
      })
    }
    return found.digest === key.digest
      ? Either.right(committed(write, Idempotency.decode(write, found.kept)))
      : Either.left(new IdempotencyConflict({ isInProgress: false }))
  }

  private apply(write: Write, now: number): Either.Either<Committed, PreconditionFailed> {
    if (write.prefixDelete !== undefined) return this.remove(write.prefixDelete, write.actor, now)
    return Either.mapBoth(
      plan(write, (namespace, key) => this.entries.keyState(namespace, key), now),
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

  private remove(prefixDelete: PrefixDelete, actor: string, now: number): Either.Either<Committed, PreconditionFailed> {
    const keys: Array<string> = []
    for (const { key } of this.entries.select(prefixDelete, "", false, now)) {
      if (keys.push(key) > prefixDelete.limit) break
    }
    const { more, write } = writeOfPrefix(prefixDelete, keys, actor)
    return Either.map(this.apply(write, now), committed => ({ ...committed, more }))
  }

  expire(now: number): number {
    const due = this.entries.due(now).toSorted((a, b) => a.expiresAt! - b.expiresAt!)
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
    return {
      expiresAt: this.entries.nextExpiry,
      oldestAt: this.changes.length > 1 ? this.changes[0]!.timestamp : null
    }
  }

  trim(before: number): number {
    const newest = this.changes.length - 1
    let count = 0
    while (count < newest && this.changes[count]!.timestamp < before) count++
    for (const { seq, namespace, key } of this.changes.slice(0, count)) {
      this.entries.removeTombstone(namespace, key, seq)
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

  /** Applies steps, adds their change records, and wakes waiting readers. Returns the records' timestamp. */
  private append(steps: ReadonlyArray<Step>, now: number): number {
    const timestamp = Math.max(now, this.changes.at(-1)?.timestamp ?? 0)
    for (const step of steps) {
      const { op, namespace, key, version, actor } = step
      const seq = this.lastSeq + 1
      const value = step.op === "set" ? step.value : null
      this.changes.push({ seq, op, namespace, key, value, version, actor, timestamp })
      this.entries.set(namespace, key, {
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
}

const bytesOf = ({ keysOnly = false }: WholeListQuery) => (keysOnly ? Number.POSITIVE_INFINITY : pageBytes)

/** Encodes entries as a list shows them. */
export const encoderOf = ({ keysOnly = false }: Pick<WholeListQuery, "keysOnly">) =>
  keysOnly ? Entry.encodeWithoutValue : Entry.encode
