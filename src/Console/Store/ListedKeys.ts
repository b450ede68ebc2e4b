/** The keys of a list, as far as its pages have been read, and how many there are in all. */
import type { Change, EntryKey, ListPage } from "../../Client/Client.ts"
import { compare } from "../../Client/KeyOrder.ts"

/** A change without its value. */
type KeyChange = Omit<Change, "value">

/** The most deleted keys that are remembered. */
const maxDeleted = 10_000

export class ListedKeys {
  /** In byte order of the key. */
  readonly items: Array<EntryKey> = []
  /** Whether the last page has been read. */
  isComplete = false
  /** How many entries there are, as far as is known; `undefined` before the first page. */
  #count: number | undefined
  /** The position of the log at which they were counted. */
  #countedAt = 0
  /** The last key of the last page: it may have been deleted since. */
  #upTo: string | undefined
  /** Changes behind the last page that have come since the next one was asked for. */
  #missed: Array<KeyChange> | undefined
  /** The latest keys that were deleted: one that is set again has a higher version than 1. */
  readonly #deleted = new Set<string>()

  /** How many entries there are, whether listed yet or not. */
  get total(): number | undefined {
    if (this.isComplete) return this.items.length
    return this.#count === undefined ? undefined : Math.max(this.#count, this.items.length)
  }

  /** Forgets everything. */
  clear(): void {
    this.items.length = 0
    this.isComplete = false
    this.#count = undefined
    this.#countedAt = 0
    this.#upTo = undefined
    this.#missed = undefined
    this.#deleted.clear()
  }

  /** Has to be called before a page is asked for: the page may be read before changes that come in meanwhile. */
  expectPage(): void {
    this.#missed ??= []
  }

  /** Has to be called where a page does not come. */
  abandonPage(): void {
    const missed = this.#takeMissed()
    for (const change of missed) this.#recount(change)
  }

  /** Takes the next page, of which the first one tells how many entries there are. */
  add({ count, items, lastSeq }: ListPage<EntryKey>, isLast: boolean): void {
    if (count !== undefined) {
      this.#count = count
      this.#countedAt = lastSeq
    }
    for (const item of items) this.#put(item)
    this.#upTo = items.at(-1)?.key ?? this.#upTo
    this.isComplete = isLast
    for (const change of this.#takeMissed()) {
      this.#recount(change)
      if (change.seq > lastSeq && this.#isRead(change.key)) this.#applyListed(change)
    }
  }

  apply(change: KeyChange): void {
    const isRead = this.#isRead(change.key)
    if (!isRead && this.#missed !== undefined) this.#missed.push(change)
    else this.#recount(change)
    if (isRead) this.#applyListed(change)
  }

  #takeMissed(): ReadonlyArray<KeyChange> {
    const missed = this.#missed ?? []
    this.#missed = undefined
    return missed
  }

  /** Whether a key lies before the end of the last page. */
  #isRead(key: string): boolean {
    return this.isComplete || (this.#upTo !== undefined && compare(key, this.#upTo) <= 0)
  }

  #recount({ key, op, seq, version }: KeyChange): void {
    if (this.isComplete) return
    const isCounted = this.#count !== undefined && seq > this.#countedAt
    if (op === "delete") {
      this.#deleted.add(key)
      if (this.#deleted.size > maxDeleted) this.#deleted.delete(this.#deleted.values().next().value!)
      if (isCounted) this.#count!--
    } else {
      const isNew = this.#deleted.delete(key) || version === 1 || (this.#isRead(key) && !this.#indexOf(key)[1])
      if (isNew && isCounted) this.#count!++
    }
  }

  #applyListed({ actor, key, namespace, op, timestamp, version }: KeyChange): void {
    if (op === "set") {
      this.#put({ namespace, key, version, updatedBy: actor, updatedAt: timestamp, expiresAt: null })
      return
    }
    const [index, isThere] = this.#indexOf(key)
    if (isThere && this.items[index]!.version <= version) this.items.splice(index, 1)
  }

  #put(item: EntryKey): void {
    const [index, isThere] = this.#indexOf(item.key)
    if (!isThere) this.items.splice(index, 0, item)
    else if (item.version > this.items[index]!.version) this.items[index] = item
  }

  #indexOf(key: string): readonly [index: number, isThere: boolean] {
    let low = 0
    let high = this.items.length
    while (low < high) {
      const middle = (low + high) >> 1
      const order = compare(this.items[middle]!.key, key)
      if (order === 0) return [middle, true]
      if (order < 0) low = middle + 1
      else high = middle
    }
    return [low, false]
  }
}
