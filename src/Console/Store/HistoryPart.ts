/** The part of the history of an entry that the page keeps. */
import type { TextChange } from "./TextEntry.ts"

/** The maximum number of changes in a part, and of characters in their values. */
export const max = { changes: 500, characters: 16 * 1024 * 1024 }

/** A part of the changes, oldest first. */
export interface HistoryPart {
  /** The change before the first one, if it is kept. */
  readonly before: TextChange | undefined
  readonly changes: ReadonlyArray<TextChange>
  /** The position in the log up to which it was read. */
  readonly after: number
}

/** Changes of an entry, oldest first, and the position in the log up to which there are no others. */
export interface HistoryPage {
  readonly changes: ReadonlyArray<TextChange>
  readonly after: number
}

export const nothing: HistoryPart = { before: undefined, changes: [], after: 0 }

/** The latest changes within the limits, after the next page was read. */
export const plus = (part: HistoryPart, { after, changes: more }: HistoryPage): HistoryPart => {
  if (more.length === 0) return { ...part, after }
  const changes = [...(part.before === undefined ? [] : [part.before]), ...part.changes, ...more]
  let first = changes.length
  for (let characters = 0; first > 0 && changes.length - first < max.changes; first--) {
    characters += changes[first - 1]!.value.length
    if (characters > max.characters && first < changes.length) break
  }
  return { before: changes[first - 1], changes: changes.slice(first), after }
}
