/**
 * Entries as lines of JSON: the rules by which the command line and the console import them. Each has its
 * own client.
 */

/** A line of a file, and its position. */
export interface TextLine {
  /** Without its line break and without a byte order mark; `undefined` if it is not UTF-8. */
  readonly text: string | undefined
  /** With its line break. */
  readonly bytes: Uint8Array
  /** From 1. */
  readonly number: number
  /** Where the next line starts, in bytes from the start of the file. */
  readonly end: number
}

/** Lines are kept in memory. A longer one is refused; the service has a lower limit. */
export const maxLineBytes = 64 * 1024 * 1024

const lineFeed = 10

const concat = (parts: ReadonlyArray<Uint8Array>, length: number): Uint8Array => {
  const whole = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/**
 * Splits bytes into lines. The last one may have no line break. `start` is the position of the first byte: the offset in
 * the file, and the number of lines before it. Throws a `RangeError` at a line of more than {@link maxLineBytes}.
 */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  start: { readonly offset: number; readonly line: number } = { offset: 0, line: 0 }
): AsyncGenerator<TextLine, void> {
  const decoder = new TextDecoder("utf-8", { fatal: true })
  let parts: Array<Uint8Array> = []
  let length = 0
  let end = start.offset
  let number = start.line
  const decode = (bytes: Uint8Array): string | undefined => {
    try {
      return decoder.decode(bytes).replace(/\r?\n$/, "")
    } catch {
      return undefined
    }
  }
  const take = (last: Uint8Array): TextLine => {
    const bytes = parts.length === 0 ? last : concat([...parts, last], length + last.length)
    parts = []
    length = 0
    end += bytes.length
    return { text: decode(bytes), bytes, number: ++number, end }
  }
  for await (const chunk of chunks) {
    let from = 0
    for (let at = chunk.indexOf(lineFeed); at >= 0; at = chunk.indexOf(lineFeed, from)) {
      yield take(chunk.subarray(from, at + 1))
      from = at + 1
    }
    if (from < chunk.length) {
      parts.push(chunk.subarray(from))
      length += chunk.length - from
    }
    if (length > maxLineBytes) throw new RangeError(`Line ${number + 1} has more than ${maxLineBytes} bytes`)
  }
  if (length > 0) yield take(new Uint8Array(0))
}

/** The limits of a batch. */
export interface Bounds {
  readonly lines: number
  /** Bytes of the lines. A single line may exceed it. */
  readonly bytes: number
}

/** Groups lines into batches, in order. */
export async function* batchesOf(
  lines: AsyncIterable<TextLine>,
  bounds: Bounds
): AsyncGenerator<ReadonlyArray<TextLine>, void> {
  let batch: Array<TextLine> = []
  let size = 0
  for await (const line of lines) {
    const { length } = line.bytes
    if (batch.length > 0 && (batch.length >= bounds.lines || size + length > bounds.bytes)) {
      yield batch
      batch = []
      size = 0
    }
    batch.push(line)
    size += length
  }
  if (batch.length > 0) yield batch
}

export interface EntryLine<Value> {
  readonly namespace: string
  readonly key: string
  readonly value: Value
  /** Epoch milliseconds; absent if the entry does not expire. */
  readonly expiresAt?: number
  /** The number of its line, from 1. */
  readonly line: number
}

/** A line that cannot be imported. */
export interface InvalidLine {
  readonly line: number
  readonly problem: string
}

export interface Destination {
  /** The namespace of all entries; `undefined` for that of each line. */
  readonly namespace: string | undefined
  /** Whether a line that names another namespace is imported into this one; otherwise it is invalid. */
  readonly replaces: boolean
}

/**
 * Reads the text of an object into its members: `value` in whatever form keeps its text, all others as `JSON.parse` has
 * them. `problem` says why a text is not an object.
 */
export type ReadMembers<Value> = (
  text: string
) => { readonly members: Readonly<Record<string, unknown>> & { readonly value?: Value } } | { readonly problem: string }

/** The problem of a line without a namespace if the destination has none either. */
export const noNamespace = "it has no namespace"

/** An export writes these members; an import leaves them to the service. */
const ignored: ReadonlySet<string> = new Set(["version", "updatedBy", "updatedAt"])

const imported: ReadonlySet<string> = new Set(["namespace", "key", "value", "expiresAt"])

/** The entry of a line, why there is none, or `undefined` for a blank line. */
export const parseLine = <Value>(
  { number, text }: Pick<TextLine, "number" | "text">,
  destination: Destination,
  read: ReadMembers<Value>
): EntryLine<Value> | InvalidLine | undefined => {
  const invalid = (problem: string): InvalidLine => ({ line: number, problem })
  if (text === undefined) return invalid("it is not UTF-8")
  if (text.trim() === "") return undefined
  const found = read(text)
  if ("problem" in found) return invalid(found.problem)
  const { members } = found
  const unknownMember = Object.keys(members).find(name => !imported.has(name) && !ignored.has(name))
  if (unknownMember !== undefined) {
    return invalid(`it has a member ${JSON.stringify(unknownMember)}, which no entry has`)
  }
  const { expiresAt = null, key, value } = members
  const named = members.namespace ?? destination.namespace
  const namespace = destination.replaces ? (destination.namespace ?? named) : named
  if (typeof namespace !== "string") return invalid(noNamespace)
  if (destination.namespace !== undefined && namespace !== destination.namespace) {
    return invalid(`its namespace is ${JSON.stringify(namespace)}, and not ${JSON.stringify(destination.namespace)}`)
  }
  if (key === undefined) return invalid("it has no key")
  if (typeof key !== "string") return invalid("its key is not text")
  if (value === undefined) return invalid("it has no value")
  if (expiresAt !== null && !Number.isSafeInteger(expiresAt)) {
    return invalid("expiresAt is not a time in epoch milliseconds")
  }
  return { namespace, key, value, line: number, ...(expiresAt !== null && { expiresAt: Number(expiresAt) }) }
}

/** What is done with an entry that exists already; `stop` fails at its batch. */
export type Existing = "replace" | "skip" | "stop"

/** The outcome of an import, in entries. */
export interface Imported {
  readonly written: number
  /** Entries that existed already. */
  readonly skipped: number
  readonly expired: number
}

/** The outcome before the first batch. */
export const nothingImported: Imported = { written: 0, skipped: 0, expired: 0 }

/** The sum of two outcomes. */
export const plus = (a: Imported, b: Imported): Imported => ({
  written: a.written + b.written,
  skipped: a.skipped + b.skipped,
  expired: a.expired + b.expired
})

type Address = Pick<EntryLine<unknown>, "namespace" | "key">

const addressOf = ({ key, namespace }: Address): string => JSON.stringify([namespace, key])

const isExpired = ({ expiresAt }: EntryLine<unknown>, now: number): boolean =>
  expiresAt !== undefined && expiresAt <= now

/**
 * Which entries of a batch are sent. The service refuses a batch with expired entries and reports its time; they are
 * left out then. If existing entries are skipped, the batch has the precondition that none exists. The service refuses it
 * if one does; existing entries are looked up then and left out. Other clients may write further ones in the meantime, so
 * that this may repeat.
 */
export class ImportBatch<Entry extends EntryLine<unknown>> {
  readonly entries: ReadonlyArray<Entry>

  private constructor(
    private readonly all: ReadonlyArray<Entry>,
    private readonly existing: Existing,
    private readonly now: number,
    private readonly skipped: ReadonlySet<string>
  ) {
    const seen = new Set(skipped)
    // A later entry with the same key would find the first one.
    const isNew = (entry: Entry) => {
      const address = addressOf(entry)
      return !seen.has(address) && seen.add(address)
    }
    const unexpired = all.filter(entry => !isExpired(entry, now))
    this.entries = existing === "skip" ? unexpired.filter(isNew) : unexpired
  }

  /** A batch. `now` is the latest time that the service has reported, in epoch milliseconds; 0 before. */
  static of<Entry extends EntryLine<unknown>>(entries: ReadonlyArray<Entry>, existing: Existing, now: number) {
    return new ImportBatch(entries, existing, now, new Set())
  }

  /** The batch after a refusal with the time of the service; `undefined` if no entry of it has expired by then. */
  withoutExpired(now: number): ImportBatch<Entry> | undefined {
    return this.entries.some(entry => isExpired(entry, now))
      ? new ImportBatch(this.all, this.existing, Math.max(this.now, now), this.skipped)
      : undefined
  }

  /** The batch without entries that were found to exist. */
  withoutExisting(found: ReadonlyArray<Address>): ImportBatch<Entry> {
    return new ImportBatch(this.all, this.existing, this.now, new Set([...this.skipped, ...found.map(addressOf)]))
  }

  /** The outcome once the entries are written. */
  get outcome(): Imported {
    const expired = this.all.filter(entry => isExpired(entry, this.now)).length
    const written = this.entries.length
    return { written, expired, skipped: this.all.length - written - expired }
  }
}
