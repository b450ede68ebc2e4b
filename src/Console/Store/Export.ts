/** Exports a part of a namespace as lines of JSON (NDJSON). */
import { bytes } from "../Widgets/Text.ts"
import { listTexts } from "./Entries.ts"

/** The maximum size of an export, which is kept in memory. The command line has no such limit. */
const maxBytes = 256 * 1024 * 1024

/** The entries whose keys start with the prefix, as lines. Values keep their text. `onCount` receives their number. */
export const exportLines = async (
  namespace: string,
  prefix: string,
  signal: AbortSignal,
  onCount: (entries: number) => void
): Promise<Blob> => {
  const parts: Array<Blob> = []
  let size = 0
  let read = 0
  for (let cursor: string | undefined, isMore = true; isMore; ) {
    const page = await listTexts(namespace, prefix, cursor, signal)
    const lines = page.items.map(
      ({ expiresAt, key, value }) => `{"key":${JSON.stringify(key)},"value":${value},"expiresAt":${expiresAt}}\n`
    )
    const part = new Blob(lines)
    size += part.size
    if (size > maxBytes) throw new Error(`The export is larger than ${bytes(maxBytes)}. Use the command line`)
    parts.push(part)
    read += page.items.length
    onCount(read)
    cursor = page.cursor
    isMore = cursor !== undefined
  }
  return new Blob(parts, { type: "application/x-ndjson" })
}
