/**
 * Messages between a database and its writer, in one thread or between two. Between threads, groups of writes are
 * packed: cloning one text and one list of numbers takes a third of the time of cloning the objects.
 */
import type { UnavailableCause } from "./DatabaseError.ts"

/** Background work of a database, in portions of one transaction each. */
export type Task = "expire" | "trim"

/** Times are epoch milliseconds. A limit bounds the work of one transaction. */
export type Request<W> =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<W>; readonly now: number }
  /** Deletes entries that have expired at `time`, or removes records that are older. */
  | { readonly kind: Task; readonly time: number; readonly limit: number }
  /** Copies the write-ahead log into the database and truncates it, unless readers of old snapshots prevent it. */
  | { readonly kind: "checkpoint" }
  /** Asks whether the database can be written, apart from the room on the disk. */
  | { readonly kind: "probe" }
  /** Commits a transaction that changes no data, and needs of the disk what a small write needs. */
  | { readonly kind: "touch" }
  /** Opens the file that has the database's name now. All readers have been closed. */
  | { readonly kind: "reopen" }
  /** Closes the file. */
  | { readonly kind: "close" }

/** Why one write of a group was not committed. The reason of a defect has its stack. */
export interface WriteFailure {
  readonly _tag: "Failed" | "Defect"
  readonly reason: string
}

/** The request was served. */
export interface Done<O> {
  readonly _tag: "Done"
  /** For a commit, one for each write. */
  readonly outcomes: ReadonlyArray<O | WriteFailure>
  /** For a task, the number of records that it created or removed. */
  readonly count: number
  /** The newest sequence number; 0 if the database has none. */
  readonly lastSeq: number
  /** The size of the write-ahead log. */
  readonly logBytes: number
  /** The file that the writer has open. */
  readonly databaseId: string | undefined
  /** The epoch of the log; `""` if the database has none. */
  readonly epoch: string
}

/** Nothing was done, or the outcome is unknown. */
export interface Unavailable {
  readonly _tag: "Unavailable"
  readonly cause: UnavailableCause
  readonly reason: string
}

/** The answer to a request. */
export type Reply<O> = Done<O> | Unavailable

/** Packs the writes and outcomes of a database, one at a time. */
export interface Codec<W, O> {
  /**
   * Packs a write. Returns false, without adding anything, for a write that must be cloned. A packed write begins with
   * a number that is not negative. Throws if a text is none.
   */
  readonly packWrite: (packer: Packer, write: W) => boolean
  readonly unpackWrite: (unpacker: Unpacker) => W
  /** The same for outcomes. */
  readonly packOutcome: (packer: Packer, outcome: O | WriteFailure) => boolean
  readonly unpackOutcome: (unpacker: Unpacker) => O
}

/** A request as it is posted. */
export type PackedRequest<W> =
  | Exclude<Request<W>, { kind: "commit" }>
  | { readonly kind: "commit"; readonly now: number; readonly packed: Packed<W> | ReadonlyArray<W> }

/** A reply as it is posted. */
export type PackedReply<O> =
  | Unavailable
  | (Omit<Done<O>, "outcomes"> & { readonly packed: Packed<O | WriteFailure> | ReadonlyArray<O | WriteFailure> })

/** Packs a request for another thread. */
export const packRequest = <W, O>(codec: Codec<W, O>, request: Request<W>): PackedRequest<W> =>
  request.kind === "commit"
    ? { kind: "commit", now: request.now, packed: pack(request.writes, codec.packWrite) }
    : request

/** The inverse of {@link packRequest}. */
export const unpackRequest = <W, O>(codec: Codec<W, O>, request: PackedRequest<W>): Request<W> =>
  request.kind === "commit"
    ? { kind: "commit", now: request.now, writes: unpack(request.packed, codec.unpackWrite) }
    : request

/** Packs a reply for another thread. */
export const packReply = <W, O>(codec: Codec<W, O>, reply: Reply<O>): PackedReply<O> => {
  if (reply._tag === "Unavailable") return reply
  const { outcomes, ...rest } = reply
  // The spread comes last: adding members to a spread creates a hidden class in V8's old space each time.
  return { packed: pack(outcomes, codec.packOutcome), ...rest }
}

/** The inverse of {@link packReply}. */
export const unpackReply = <W, O>(codec: Codec<W, O>, reply: PackedReply<O>): Reply<O> => {
  if (reply._tag === "Unavailable") return reply
  const { packed, ...rest } = reply
  return { outcomes: unpack<O | WriteFailure>(packed, codec.unpackOutcome), ...rest }
}

/** The concatenated texts of items, and numbers, which include the lengths of the texts. */
interface Packed<A> {
  readonly text: string
  readonly numbers: Float64Array
  /** The items that are cloned, in order. */
  readonly others: ReadonlyArray<A>
}

/** Represents an item of `others` among the numbers. */
const other = -1

/** Longer texts are not packed: V8 limits the length of strings to about four times this. */
const maxTextLength = 128 * 1024 * 1024

/** Packs items. Returns them unchanged if their texts are too long. */
const pack = <A>(
  items: ReadonlyArray<A>,
  packItem: (packer: Packer, item: A) => boolean
): Packed<A> | ReadonlyArray<A> => {
  const packer = new Packer()
  const others: Array<A> = []
  for (const item of items) {
    if (packItem(packer, item)) continue
    packer.number(other)
    others.push(item)
  }
  if (packer.length > maxTextLength) return items
  return { text: packer.texts.join(""), numbers: new Float64Array(packer.numbers), others }
}

const unpack = <A>(packed: Packed<A> | ReadonlyArray<A>, unpackItem: (unpacker: Unpacker) => A): ReadonlyArray<A> => {
  if (!("numbers" in packed)) return packed
  const unpacker = new Unpacker(packed)
  const items: Array<A> = []
  let next = 0
  while (unpacker.hasMore) items.push(unpacker.skip(other) ? packed.others[next++]! : unpackItem(unpacker))
  return items
}

/** Collects the texts and the numbers of items. */
export class Packer {
  readonly texts: Array<string> = []
  readonly numbers: Array<number> = []
  length = 0

  /** Adds a text and its length. A value of another type would shift the texts of all later items. */
  text(text: string): void {
    if (typeof text !== "string") throw new TypeError(`a ${typeof text} in place of a text`)
    this.texts.push(text)
    this.numbers.push(text.length)
    this.length += text.length
  }

  number(number: number): void {
    this.numbers.push(number)
  }
}

/** Reads what a `Packer` has collected, in the same order. */
export class Unpacker {
  private next = 0
  private start = 0

  constructor(private readonly packed: { readonly text: string; readonly numbers: Float64Array }) {}

  get hasMore(): boolean {
    return this.next < this.packed.numbers.length
  }

  number(): number {
    return this.packed.numbers[this.next++]!
  }

  /** Reads the next number if it is `number`. Returns whether it was. */
  skip(number: number): boolean {
    if (this.packed.numbers[this.next] !== number) return false
    this.next++
    return true
  }

  text(): string {
    const length = this.number()
    this.start += length
    return this.packed.text.slice(this.start - length, this.start)
  }
}
