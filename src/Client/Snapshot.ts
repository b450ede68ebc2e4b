import type { Change, ListPage } from "./Model.ts"

/** UTF-16 puts surrogates before U+E000 to U+FFFF, UTF-8 puts them behind. */
const utf8Rank = (unit: number): number => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800)

/** Compares two texts as their UTF-8 bytes would compare. */
export const compareBytes = (a: string, b: string): number => {
  const shorter = Math.min(a.length, b.length)
  for (let i = 0; i < shorter; i++) {
    const difference = utf8Rank(a.charCodeAt(i)) - utf8Rank(b.charCodeAt(i))
    if (difference !== 0) return difference
  }
  return a.length - b.length
}

/**
 * Where the pages of a list were read in the log. Each page is of its own moment: a change is new where it came after
 * the page that has, or would have, its key. One position stands for all keys once the log was read past the last page.
 */
export class Snapshot {
  /** Neighbors that were read at the same position are one. */
  readonly #parts: Array<{ readonly upTo: string; readonly lastSeq: number }> = []
  #lastSeq = 0

  /** The position that the log must be read from. */
  get start(): number {
    return this.#parts[0]?.lastSeq ?? this.#lastSeq
  }

  add({ items, lastSeq }: ListPage): void {
    const upTo = items.at(-1)?.key ?? ""
    if (this.#parts.at(-1)?.lastSeq === lastSeq) this.#parts.pop()
    this.#parts.push({ upTo, lastSeq })
    this.#lastSeq = lastSeq
  }

  /** Whether a change came after what the list told of its key. */
  isNew({ key, seq }: Change): boolean {
    if (seq > this.#lastSeq) {
      this.#parts.length = 0
      return true
    }
    // The last page goes on to the end of the namespace.
    const part = this.#parts.find(({ upTo }) => compareBytes(key, upTo) <= 0)
    return seq > (part?.lastSeq ?? this.#lastSeq)
  }
}
