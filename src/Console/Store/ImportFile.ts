/** Entries from a file of lines of JSON. */
import { PreconditionFailed } from "../../Client/Client.ts"
import { membersOf, problemOf } from "../Json/JsonText.ts"
import { existingKeys, type Imported, writeAll } from "./Entries.ts"
import { linesOf } from "./FileLines.ts"

/** The most entries and characters of a batch. */
export const batch = { entries: 500, characters: 4 * 1024 * 1024 }

/** What is done about an entry that is there already. */
export type Existing = "stop" | "skip" | "replace"

/** How far an import has come. */
export interface Progress {
  readonly written: number
  /** Entries that were left out, as they were there. */
  readonly skipped: number
}

/** An entry of a line. */
const importedOf = (line: string, number: number): Imported => {
  const wrong = (what: string) => new Error(`Line ${number}: ${what}`)
  const problem = problemOf(line)
  if (problem !== undefined) throw wrong(`column ${problem.offset + 1}: ${problem.message}`)
  if (!line.trimStart().startsWith("{")) throw wrong("it is no object with key and value")
  const members = membersOf(line)
  const key: unknown = JSON.parse(members.get("key") ?? "null")
  const value = members.get("value")
  const expiresAt: unknown = JSON.parse(members.get("expiresAt") ?? "null")
  if (typeof key !== "string" || value === undefined) throw wrong("an entry has a key, which is text, and a value")
  if (expiresAt !== null && typeof expiresAt !== "number") throw wrong("expiresAt is a time in milliseconds, or null")
  return { key, value, expiresAt }
}

/** How often a batch is written again where somebody else writes the same entries. */
const mostTries = 10

/** Writes those of the entries that are not there. Returns how many. */
const writeNew = async (namespace: string, entries: ReadonlyArray<Imported>, signal: AbortSignal): Promise<number> => {
  for (let tries = 1; ; tries++) {
    const known = new Set(
      await existingKeys(
        namespace,
        entries.map(({ key }) => key),
        signal
      )
    )
    const missing = entries.filter(({ key }) => !known.has(key) && known.add(key))
    try {
      if (missing.length > 0) await writeAll(namespace, missing, true, signal)
      return missing.length
    } catch (error) {
      // Somebody has written one of them since.
      if (!(error instanceof PreconditionFailed) || tries === mostTries) throw error
    }
  }
}

/** Reads a file and writes its entries in batches, each of which is written whole or not at all. */
export const importFile = async (
  file: Blob,
  namespace: string,
  existing: Existing,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void
): Promise<Progress> => {
  let waiting: Array<Imported> = []
  let characters = 0
  let progress: Progress = { written: 0, skipped: 0 }
  let number = 0
  const flush = async () => {
    if (waiting.length === 0) return
    const { length } = waiting
    if (existing === "skip") {
      const written = await writeNew(namespace, waiting, signal)
      progress = { written: progress.written + written, skipped: progress.skipped + length - written }
    } else {
      await writeAll(namespace, waiting, existing === "stop", signal)
      progress = { ...progress, written: progress.written + length }
    }
    onProgress(progress)
    waiting = []
    characters = 0
  }
  for await (const line of linesOf(file)) {
    number++
    if (line.trim() === "") continue
    waiting.push(importedOf(line, number))
    characters += line.length
    if (waiting.length >= batch.entries || characters >= batch.characters) await flush()
  }
  await flush()
  return progress
}
