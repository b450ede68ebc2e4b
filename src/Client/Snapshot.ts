import { compare } from "./KeyOrder.ts"
import type { Change, ListPage } from "./Model.ts"

/**
 * The positions of the change log at which the pages of a list were read. Each page is a separate snapshot: a change is
 * new if it came after the page of its key. Once the log was read past the last page, one position suffices.
 */
export class Snapshot {
  /** Adjacent pages with the same position are merged. */
  readonly #parts: Array<{ readonly upTo: string; readonly lastSeq: number }> = []
  #lastSeq = 0

  /** The position from which the log must be read. */
  get start(): number {
    return this.#parts[0]?.lastSeq ?? this.#lastSeq
  }

  add({ items, lastSeq }: ListPage): void {
    const upTo = items.at(-1)?.key ?? ""
    if (this.#parts.at(-1)?.lastSeq === lastSeq) this.#parts.pop()
    this.#parts.push({ upTo, lastSeq })
    this.#lastSeq = lastSeq
  }

  /** Whether a change came after the page of its key. */
  isNew({ key, seq }: Change): boolean {
    if (seq > this.#lastSeq) {
      this.#parts.length = 0
      return true
    }
    // The last page extends to the end of the namespace.
    const part = this.#parts.find(({ upTo }) => compare(key, upTo) <= 0)
    return seq > (part?.lastSeq ?? this.#lastSeq)
  }
}
