import type { JsonText } from "../../src/base/Json/JsonText.ts"
import type { StoredChange } from "../../src/Kv/Change.ts"
import type { ChangePage, ChangeQuery } from "../../src/Kv/ChangeLog.ts"
import type { StoredEntry } from "../../src/Kv/Entry.ts"
import type { Selection } from "../../src/Kv/Store.ts"
import type { Operation, OperationResult, Precondition } from "../../src/Kv/Write.ts"

/** The expected outcome of a write: its results, or the operation that is refused. */
export type Verdict =
  | { readonly results: ReadonlyArray<OperationResult> }
  | { readonly index: number; readonly currentVersion: number | null; readonly isChangedBefore: boolean }

interface Names {
  readonly namespace: string
  readonly key: string
}

/** Names as one comparable text. */
export const idOf = ({ namespace, key }: Names) => JSON.stringify([namespace, key])

const distinct = (all: ReadonlyArray<Names>): ReadonlyArray<Names> => [
  ...new Map(all.map(({ namespace, key }) => [idOf({ namespace, key }), { namespace, key }])).values()
]

const bytesOf = (text: string) => Buffer.from(text, "utf8")

/**
 * A reference model of the store, written from the documentation and independent of the product's code:
 * the log is the only state, and a key's entry follows from its newest record.
 */
export class Model {
  now: number
  /** All records ever, trimmed ones included. */
  readonly log: Array<StoredChange> = []
  /** Records up to this one are trimmed. */
  trimmed = 0
  /** The expiry times of sets, by seq. */
  private readonly ends = new Map<number, number | null>()

  constructor(now: number) {
    this.now = now
  }

  get end(): number {
    return this.log.length
  }

  /** The newest record of a key: gone once it is a trimmed delete. */
  private newest({ namespace, key }: Names): StoredChange | undefined {
    const record = this.log.findLast(change => change.key === key && change.namespace === namespace)
    return record?.op === "delete" && record.seq <= this.trimmed ? undefined : record
  }

  private hasEnded(record: StoredChange): boolean {
    const end = this.ends.get(record.seq) ?? null
    return end !== null && end <= this.now
  }

  private present(names: Names): StoredChange | undefined {
    const record = this.newest(names)
    return record?.op === "set" && !this.hasEnded(record) ? record : undefined
  }

  private append(record: Names & { readonly actor: string }, value: JsonText | null, end: number | null = null): void {
    const { namespace, key, actor } = record
    const version = (this.newest(record)?.version ?? 0) + 1
    const seq = this.log.length + 1
    const timestamp = Math.max(this.now, ...this.log.slice(-1).map(change => change.timestamp))
    this.log.push({ seq, op: value === null ? "delete" : "set", namespace, key, value, version, actor, timestamp })
    this.ends.set(seq, end)
  }

  write(operations: ReadonlyArray<Operation>, actor: string): Verdict {
    const before = this.log.length
    for (const names of distinct(operations.filter(operation => operation.op === "set"))) {
      const record = this.newest(names)
      if (record?.op === "set" && this.hasEnded(record)) this.append({ ...record, actor: "expiry" }, null)
    }
    const results: Array<OperationResult> = []
    for (const [index, operation] of operations.entries()) {
      const current = this.present(operation)?.version ?? null
      if (!allows(operation.precondition, current)) {
        const { namespace, key } = operation
        const isChangedBefore = this.log
          .slice(before)
          .some(r => r.namespace === namespace && r.key === key && r.actor !== "expiry")
        this.log.length = before
        return { index, currentVersion: this.present(operation)?.version ?? null, isChangedBefore }
      }
      if (operation.op === "set") {
        this.append({ ...operation, actor }, operation.value, operation.expiresAt)
        const entry = this.entry(this.newest(operation)!)
        results.push({ op: "set", version: entry.version, entry })
      } else {
        if (current !== null) this.append({ ...operation, actor }, null)
        results.push({ op: "delete", deleted: current !== null })
      }
    }
    return { results }
  }

  get(namespace: string, key: string): StoredEntry | undefined {
    const record = this.present({ namespace, key })
    return record && this.entry(record)
  }

  private entry({ namespace, key, value, version, actor, timestamp, seq }: StoredChange): StoredEntry {
    const expiresAt = this.ends.get(seq) ?? null
    return { namespace, key, value: value!, version, updatedBy: actor, updatedAt: timestamp, expiresAt }
  }

  /** All entries of a selection, in the order of a list. */
  list({ namespace, prefix }: Selection): ReadonlyArray<StoredEntry> {
    const keys = new Set(this.log.filter(change => change.namespace === namespace).map(change => change.key))
    return [...keys]
      .filter(key => bytesOf(key).subarray(0, bytesOf(prefix).length).equals(bytesOf(prefix)))
      .sort((a, b) => Buffer.compare(bytesOf(a), bytesOf(b)))
      .flatMap(key => this.get(namespace, key) ?? [])
  }

  /** The keys that have expired and are not yet deleted. */
  due(): ReadonlyArray<Names> {
    return distinct(this.log).filter(names => this.newest(names)?.op === "set" && this.present(names) === undefined)
  }

  /** Expires keys in the order given. */
  expire(keys: ReadonlyArray<Names>): void {
    for (const { namespace, key } of keys) this.append({ namespace, key, actor: "expiry" }, null)
  }

  trim(age: number): number {
    const before = this.trimmed
    while (this.trimmed < this.end - 1 && this.log[this.trimmed]!.timestamp < this.now - age) this.trimmed++
    return this.trimmed - before
  }

  /** All records that a query matches, or `undefined` if it asks for trimmed ones. */
  matching(query: Omit<ChangeQuery, "limit">): ReadonlyArray<StoredChange> | undefined {
    const { after, prefix = "", tenant } = query
    if (after < this.trimmed) return undefined
    const isOfTenant = (namespace: string) =>
      tenant === "" || namespace === `tenant:${tenant}` || namespace.startsWith(`tenant:${tenant}/`)
    const isOfPart = (namespace: string, key: string) =>
      query.namespace === undefined ||
      (namespace === query.namespace && key.startsWith(prefix) && prefix.isWellFormed())
    return this.log.filter(
      ({ key, namespace, seq }) => seq > after && isOfTenant(namespace) && isOfPart(namespace, key)
    )
  }

  /** What is wrong with a page, or `undefined`. A full page may end anywhere before the next match. */
  problemOf(query: ChangeQuery, page: ChangePage): string | undefined {
    const matching = this.matching(query)
    if (matching === undefined) return "the query asks for trimmed records"
    const expected = matching.slice(0, query.limit)
    if (JSON.stringify(page.changes.map(c => c.seq)) !== JSON.stringify(expected.map(c => c.seq))) {
      return `records ${page.changes.map(c => c.seq)} instead of ${expected.map(c => c.seq)}`
    }
    const next = matching[query.limit]?.seq ?? this.end + 1
    const least = expected.length === query.limit ? expected.at(-1)!.seq : this.end
    return page.lastSeq >= least && page.lastSeq < next
      ? undefined
      : `lastSeq ${page.lastSeq} instead of one from ${least} to ${next - 1}`
  }
}

const allows = (precondition: Precondition | undefined, current: number | null): boolean => {
  const { match, noneMatch } = precondition ?? {}
  const isAmong = (versions: "any" | ReadonlyArray<number>) =>
    current !== null && (versions === "any" || versions.some(version => version === current))
  return (match === undefined || isAmong(match)) && (noneMatch === undefined || !isAmong(noneMatch))
}
