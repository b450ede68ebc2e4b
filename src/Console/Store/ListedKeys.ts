/** The keys of a list whose pages have been read, and the number of all keys. */
import type { Change, EntryKey, ListPage } from "../../Client/Client.ts"
import { compare } from "../../Client/KeyOrder.ts"

type KeyChange = Omit<Change, "value">

/** The maximum number of deleted keys that are remembered. */
const maxDeleted = 10_000

export class ListedKeys {
  /** In byte order of the key. */
  readonly items: Array<EntryKey> = []
  isComplete = false
  /** The known number of entries; `undefined` before the first page. */
  #count: number | undefined
  /** The position of the log when they were counted. */
  #countedAt = 0
  /** For each page the last key, which may have been deleted since, and the position of the log. */
  readonly #pages: Array<{ readonly lastKey: string; readonly lastSeq: number }> = []
  /** Changes after the last page that were received while the next page is read. */
  #missed: Array<KeyChange> | undefined
  /** The keys that were deleted last. If such a key is set again, its version is not 1. */
  readonly #deleted = new Set<string>()

  get total(): number | undefined {
    if (this.isComplete) return this.items.length
    return this.#count === undefined ? undefined : Math.max(this.#count, this.items.length)
  }

  clear(): void {
    this.items.length = 0
    this.isComplete = false
    this.#count = undefined
    this.#countedAt = 0
    this.#pages.length = 0
    this.#takeMissed()
    this.#deleted.clear()
  }

  /** Must be called before a page is requested. The page may be older than changes that are received before it. */
  expectPage(): void {
    this.#missed ??= []
  }

  /** Must be called if the page is not received. */
  abandonPage(): void {
    for (const change of this.#takeMissed()) this.#recount(change)
  }

  /** Adds the next page. The first page has the number of entries. */
  add({ count, items, lastSeq }: ListPage<EntryKey>, isLast: boolean): void {
    if (count !== undefined) {
      this.#count = count
      this.#countedAt = lastSeq
    }
    for (const item of items) this.#put(item)
    const lastKey = items.at(-1)?.key
    if (lastKey !== undefined) this.#pages.push({ lastKey, lastSeq })
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

  /** Whether a key is up to the end of the last page. */
  #isRead(key: string): boolean {
    const end = this.#pages.at(-1)?.lastKey
    return this.isComplete || (end !== undefined && compare(key, end) <= 0)
  }

  #recount({ key, op, seq, version }: KeyChange): void {
    if (this.isComplete) return
    const isCounted = this.#count !== undefined && seq > this.#countedAt
    if (op === "delete") {
      this.#deleted.add(key)
      if (this.#deleted.size > maxDeleted) this.#deleted.delete(this.#deleted.values().next().value!)
      if (isCounted) this.#count!--
    } else {
      const isNew = this.#deleted.delete(key) || version === 1 || this.#wasAbsent(key, seq)
      if (isNew && isCounted) this.#count!++
    }
  }

  /** Whether a key was absent before a change. An older page without the key shows it; a newer page does not. */
  #wasAbsent(key: string, seq: number): boolean {
    const page = this.#pages.find(({ lastKey }) => compare(key, lastKey) <= 0)
    return page !== undefined && seq > page.lastSeq && !this.#indexOf(key)[1]
  }

  #applyListed({ actor, key, namespace, op, timestamp, version }: KeyChange): void {
    if (op === "set") {
      this.#put({ namespace, key, version, updatedBy: actor, updatedAt: timestamp, expiresAt: null })
      return
    }
    const [index, isPresent] = this.#indexOf(key)
    if (isPresent && this.items[index]!.version <= version) this.items.splice(index, 1)
  }

  #put(item: EntryKey): void {
    const [index, isPresent] = this.#indexOf(item.key)
    if (!isPresent) this.items.splice(index, 0, item)
    else if (item.version > this.items[index]!.version) this.items[index] = item
  }

  #indexOf(key: string): readonly [index: number, isPresent: boolean] {
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
