/** Follows the change log or a namespace as a stream of events. */
import { Gone } from "./Errors.ts"
import { compare } from "./KeyOrder.ts"
import type { LogReader } from "./LogReader.ts"
import type { Change, FollowEvent, ListPage } from "./Model.ts"
import { isOther, isReset, type Part, type Position } from "./Transports.ts"

/** Follows the log from a position. Ends after a reset, and if history is no longer kept, with the event for it. */
export async function* followLog(
  reader: LogReader,
  start: Position,
  part: Part,
  isWanted: (change: Change) => boolean = () => true
): AsyncGenerator<FollowEvent, void> {
  let { after, epoch } = start
  try {
    for await (const page of reader.pages(start, part)) {
      const { changes, lastSeq } = page
      if (isReset(page, { after, epoch })) return yield { type: "reset", lastSeq, epoch: page.epoch }
      epoch = page.epoch || epoch
      for (const change of changes) {
        if (change.seq > after && isWanted(change)) yield { type: "change", change, epoch: epoch ?? "" }
      }
      after = lastSeq
    }
  } catch (error) {
    if (!(error instanceof Gone)) throw error
    if (epoch === undefined || !isOther(error.epoch, epoch)) {
      return yield { type: "trimmed", after, trimmedSeq: error.trimmedSeq }
    }
    const { epoch: newEpoch, lastSeq } = await reader.end()
    yield { type: "reset", lastSeq, epoch: newEpoch }
  }
}

/** A page of a list, and the cursor of the next one. */
export interface CursorPage extends ListPage {
  readonly cursor: string | undefined
}

/** Lists a part of a namespace and follows it; starts again if the log was reset or is no longer kept. */
export async function* followNamespace(
  reader: LogReader,
  part: Part,
  list: (cursor: string | undefined) => Promise<CursorPage>
): AsyncGenerator<FollowEvent, void> {
  for (;;) {
    const snapshot = new Snapshot()
    let epoch: string | undefined
    let isReplaced = false
    for (let cursor: string | undefined, isMore = true; isMore; ) {
      const page: CursorPage = await reader.retrying(() => list(cursor))
      epoch ??= page.epoch
      // All pages of a list must belong to one log.
      if (isOther(page.epoch, epoch)) {
        yield { type: "reset", lastSeq: page.lastSeq, epoch: page.epoch }
        isReplaced = true
        break
      }
      snapshot.add(page)
      for (const entry of page.items) yield { type: "entry", entry }
      cursor = page.cursor
      isMore = cursor !== undefined
    }
    if (!isReplaced) {
      const { start } = snapshot
      yield { type: "synced", lastSeq: start, epoch: epoch ?? "" }
      yield* followLog(reader, { after: start, epoch: epoch || undefined }, part, change => snapshot.isNew(change))
    }
    await reader.pause()
  }
}

/** Follows a part of a namespace from now on; starts again if the log was reset or is no longer kept. */
export async function* followFromEnd(reader: LogReader, part: Part): AsyncGenerator<FollowEvent, void> {
  for (;;) {
    const { epoch, lastSeq } = await reader.end()
    yield { type: "synced", lastSeq, epoch }
    yield* followLog(reader, { after: lastSeq, epoch: epoch || undefined }, part)
    await reader.pause()
  }
}

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
