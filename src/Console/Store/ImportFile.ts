/** Entries from a file of lines of JSON. */
import { BadRequest, PayloadTooLarge, PreconditionFailed } from "../../Client/Client.ts"
import { isClientError, operationIndexOf, serverTimeOf, withoutOperation } from "../../Client/Errors.ts"
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
  /** Entries that were left out, as their time is over. */
  readonly expired: number
}

/** An entry, and the line that it is from. */
interface Item extends Imported {
  readonly line: number
}

/** The members of a line. What an export by the command line writes beside is left to the service. */
const known: ReadonlySet<string> = new Set([
  ...["namespace", "key", "value", "expiresAt"],
  ...["version", "updatedBy", "updatedAt"]
])

/** An entry of a line. */
const importedOf = (line: string, number: number, namespace: string): Item => {
  const wrong = (what: string) => new Error(`Line ${number}: ${what}`)
  const problem = problemOf(line)
  if (problem !== undefined) throw wrong(`column ${problem.offset + 1}: ${problem.message}`)
  if (!line.trimStart().startsWith("{")) throw wrong("it is no object with key and value")
  const members = membersOf(line)
  const stranger = [...members.keys()].find(name => !known.has(name))
  if (stranger !== undefined) throw wrong(`it has a member ${JSON.stringify(stranger)}, which no entry has`)
  const place: unknown = JSON.parse(members.get("namespace") ?? JSON.stringify(namespace))
  if (place !== namespace) throw wrong(`its namespace is ${JSON.stringify(place)}, and not the one that is open`)
  const key: unknown = JSON.parse(members.get("key") ?? "null")
  const value = members.get("value")
  const expiresAt: unknown = JSON.parse(members.get("expiresAt") ?? "null")
  if (typeof key !== "string" || value === undefined) throw wrong("an entry has a key, which is text, and a value")
  if (expiresAt !== null && typeof expiresAt !== "number") throw wrong("expiresAt is a time in milliseconds, or null")
  return { key, value, expiresAt, line: number }
}

/** The service refuses an entry, and the batch with it. */
class LineRefused extends Error {
  constructor(
    readonly item: Item,
    problem: string
  ) {
    super(`Line ${item.line}: ${problem}`)
  }
}

/** Writes entries as one batch. What is wrong with one of them is told with its line. */
const write = async (namespace: string, items: ReadonlyArray<Item>, isNew: boolean, signal: AbortSignal) => {
  try {
    await writeAll(namespace, items, isNew, signal)
  } catch (error) {
    const index = isClientError(error) ? operationIndexOf(error) : undefined
    const item = index === undefined ? undefined : items[index]
    if (item === undefined || !isClientError(error)) throw error
    const isRefused = error instanceof BadRequest || error instanceof PayloadTooLarge
    // The time of the service is read from the error as it is.
    if (isRefused && serverTimeOf(error) === undefined) throw new LineRefused(item, withoutOperation(error))
    error.message = `Line ${item.line}: ${withoutOperation(error)}`
    throw error
  }
}

const isExpired = ({ expiresAt }: Item, now: number): boolean => expiresAt !== null && expiresAt <= now

/** How often a batch is written again where somebody else writes the same entries. */
const maxTries = 10

/** Where a key is refused when it is looked up, the write tells of which line it is. */
const noneWhereRefused = (error: unknown): ReadonlyArray<string> => {
  if (error instanceof BadRequest) return []
  throw error
}

/** Writes those of the entries that are not there. Returns how many. */
const writeNew = async (namespace: string, entries: ReadonlyArray<Item>, signal: AbortSignal): Promise<number> => {
  for (let tries = 1; ; tries++) {
    const keys = entries.map(({ key }) => key)
    const there = new Set(await existingKeys(namespace, keys, signal).catch(noneWhereRefused))
    const missing = entries.filter(({ key }) => !there.has(key) && there.add(key))
    try {
      if (missing.length > 0) await write(namespace, missing, true, signal)
      return missing.length
    } catch (error) {
      // Somebody has written one of them since.
      if (!(error instanceof PreconditionFailed) || tries === maxTries) throw error
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
  let waiting: Array<Item> = []
  let characters = 0
  let progress: Progress = { written: 0, skipped: 0, expired: 0 }
  let number = 0
  /** The time by which the service has refused entries. */
  let now = 0
  /** Writes those whose time is not over. Returns how many. */
  const writeLiving = async (items: ReadonlyArray<Item>): Promise<number> => {
    if (items.length === 0) return 0
    try {
      if (existing === "skip") return await writeNew(namespace, items, signal)
      await write(namespace, items, existing === "stop", signal)
      return items.length
    } catch (error) {
      // The clock of the browser decides nothing.
      const refused = isClientError(error) ? serverTimeOf(error) : undefined
      if (refused === undefined || !items.some(item => isExpired(item, refused))) throw error
      now = refused
      return writeLiving(items.filter(item => !isExpired(item, now)))
    }
  }
  /** Writes entries, or where the service refuses one of them those before it. */
  const writeBefore = async (items: ReadonlyArray<Item>): Promise<void> => {
    if (items.length === 0) return
    let written: number
    try {
      written = await writeLiving(items.filter(item => !isExpired(item, now)))
    } catch (error) {
      if (error instanceof LineRefused) await writeBefore(items.slice(0, items.indexOf(error.item)))
      throw error
    }
    const expired = items.filter(item => isExpired(item, now)).length
    progress = {
      written: progress.written + written,
      skipped: progress.skipped + items.length - written - expired,
      expired: progress.expired + expired
    }
    onProgress(progress)
  }
  const flush = async () => {
    await writeBefore(waiting)
    waiting = []
    characters = 0
  }
  for await (const line of linesOf(file)) {
    number++
    if (line.trim() === "") continue
    let item: Item
    try {
      item = importedOf(line, number, namespace)
    } catch (error) {
      await flush()
      throw error
    }
    waiting.push(item)
    characters += line.length
    if (waiting.length >= batch.entries || characters >= batch.characters) await flush()
  }
  await flush()
  return progress
}
