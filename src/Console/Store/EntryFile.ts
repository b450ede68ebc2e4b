/** Exports and imports entries as a file of lines of JSON (NDJSON). */
import { BadRequest, PayloadTooLarge, PreconditionFailed } from "../../Client/Client.ts"
import {
  batchesOf,
  type EntryLine,
  type Existing,
  ImportBatch,
  type Imported,
  type InvalidLine,
  linesOf,
  nothingImported,
  parseLine,
  plus,
  type TextLine
} from "../../Client/EntryLines.ts"
import { isClientError, operationIndexOf, serverTimeOf, withoutOperation } from "../../Client/Errors.ts"
import { readMembers } from "../JsonText.ts"
import { bytes } from "../Widgets/Text.ts"
import { existingKeys, listTexts, writeAll } from "./Entries.ts"

/** The maximum size of an export, which is kept in memory. The command line has no such limit. */
const maxExport = 256 * 1024 * 1024

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
    if (size > maxExport) throw new Error(`The export is larger than ${bytes(maxExport)}. Use the command line`)
    parts.push(part)
    read += page.items.length
    onCount(read)
    cursor = page.cursor
    isMore = cursor !== undefined
  }
  return new Blob(parts, { type: "application/x-ndjson" })
}

export const bounds = { lines: 500, bytes: 4 * 1024 * 1024 }

type Item = EntryLine<string>

class LineRefused extends Error {
  constructor(
    readonly line: number,
    problem: string
  ) {
    super(`Line ${line}: ${problem}`)
  }
}

const itemsOf = (lines: ReadonlyArray<TextLine>, namespace: string) => {
  const items: Array<Item> = []
  for (const line of lines) {
    const parsed = parseLine(line, { namespace, replaces: false }, readMembers)
    if (parsed === undefined) continue
    if ("problem" in parsed) return { items, invalid: parsed }
    items.push(parsed)
  }
  return { items, invalid: undefined as InvalidLine | undefined }
}

/** Writes entries as one batch. An error that concerns one of them names its line. */
const write = async (namespace: string, items: ReadonlyArray<Item>, existing: Existing, signal: AbortSignal) => {
  try {
    await writeAll(namespace, items, existing !== "replace", signal)
  } catch (error) {
    const index = isClientError(error) ? operationIndexOf(error) : undefined
    const item = index === undefined ? undefined : items[index]
    if (item === undefined || !isClientError(error)) throw error
    const isRefused = error instanceof BadRequest || error instanceof PayloadTooLarge
    // The time of the service is read from the unchanged error.
    if (isRefused && serverTimeOf(error) !== undefined) throw error
    if (isRefused) throw new LineRefused(item.line, withoutOperation(error))
    const isPresent = existing === "stop" && error instanceof PreconditionFailed
    const problem = isPresent ? "the entry already exists. Its batch was not written." : withoutOperation(error)
    error.message = `Line ${item.line}: ${problem}`
    throw error
  }
}

/** Returns a function that writes entries by the rules of {@link ImportBatch}. */
const importer = (namespace: string, existing: Existing, signal: AbortSignal) => {
  /** The latest time that the service has reported, in epoch milliseconds; 0 before. The page's clock is not used. */
  let serverTime = 0
  const afterRefusal = async (error: unknown, batch: ImportBatch<Item>): Promise<ImportBatch<Item>> => {
    if (existing === "skip" && error instanceof PreconditionFailed) {
      const keys = batch.entries.map(({ key }) => key)
      // If the entry was deleted since then, none is found, and the same batch may succeed.
      const found = await existingKeys(namespace, keys, signal)
      return batch.withoutExisting(found.map(key => ({ namespace, key })))
    }
    const now = isClientError(error) ? serverTimeOf(error) : undefined
    const smaller = now === undefined ? undefined : batch.withoutExpired(now)
    if (now === undefined || smaller === undefined) throw error
    serverTime = Math.max(serverTime, now)
    return smaller
  }
  return async (items: ReadonlyArray<Item>): Promise<Imported> => {
    let batch = ImportBatch.of(items, existing, serverTime)
    while (batch.entries.length > 0) {
      try {
        await write(namespace, batch.entries, existing, signal)
        break
      } catch (error) {
        batch = await afterRefusal(error, batch)
      }
    }
    return batch.outcome
  }
}

/** Writes the entries of a file in atomic batches. Stops at a line that is refused: those before it are written. */
export const importFile = async (
  file: Blob,
  namespace: string,
  existing: Existing,
  signal: AbortSignal,
  onProgress: (progress: Imported) => void
): Promise<Imported> => {
  const send = importer(namespace, existing, signal)
  let progress = nothingImported
  /** Writes entries. If the service refuses one of them, and the batch with it, those before it are written alone. */
  const writeItems = async (items: ReadonlyArray<Item>): Promise<void> => {
    if (items.length === 0) return
    try {
      progress = plus(progress, await send(items))
    } catch (error) {
      if (error instanceof LineRefused) await writeItems(items.filter(({ line }) => line < error.line))
      throw error
    }
    onProgress(progress)
  }
  for await (const lines of batchesOf(linesOf(chunksOf(file)), bounds)) {
    const { invalid, items } = itemsOf(lines, namespace)
    await writeItems(items)
    if (invalid !== undefined) throw new LineRefused(invalid.line, invalid.problem)
  }
  return progress
}

/** The bytes of a file. Not all browsers can iterate over its stream. */
async function* chunksOf(file: Blob): AsyncGenerator<Uint8Array> {
  const reader = file.stream().getReader()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    yield value
  }
}
