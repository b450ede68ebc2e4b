import { Gone } from "./Errors.ts"
import type { LogReader } from "./LogReader.ts"
import type { Change, FollowEvent, ListPage } from "./Model.ts"
import { Snapshot, tenantOf } from "./Snapshot.ts"

/** Follows the log from a position. A reset, and history that is no longer kept, are its last event. */
export async function* followLog(
  reader: LogReader,
  after: number,
  tenant: string | undefined,
  isWanted: (change: Change) => boolean = () => true
): AsyncGenerator<FollowEvent, void> {
  let position = after
  try {
    for await (const { changes, lastSeq } of reader.pages(after, tenant)) {
      if (lastSeq < position) return yield { type: "reset", lastSeq }
      for (const change of changes) {
        if (change.seq > position && isWanted(change)) yield { type: "change", change }
      }
      position = lastSeq
    }
  } catch (error) {
    if (!(error instanceof Gone)) throw error
    yield { type: "trimmed", after: position }
  }
}

/** A page of a list, and where the next one starts. */
export interface CursorPage extends ListPage {
  readonly cursor: string | undefined
}

/** Lists a part of a namespace and then follows it; begins anew where the log was reset or is no longer kept. */
export async function* followNamespace(
  reader: LogReader,
  namespace: string,
  prefix: string,
  list: (cursor: string | undefined) => Promise<CursorPage>
): AsyncGenerator<FollowEvent, void> {
  for (;;) {
    const snapshot = new Snapshot()
    for (let cursor: string | undefined, isMore = true; isMore; ) {
      const page: CursorPage = await reader.retrying(() => list(cursor))
      snapshot.add(page)
      for (const entry of page.items) yield { type: "entry", entry }
      cursor = page.cursor
      isMore = cursor !== undefined
    }
    const { start } = snapshot
    yield { type: "synced", lastSeq: start }
    const isWanted = (change: Change) =>
      change.namespace === namespace && change.key.startsWith(prefix) && snapshot.isNew(change)
    yield* followLog(reader, start, tenantOf(namespace) || undefined, isWanted)
    await reader.pause()
  }
}
