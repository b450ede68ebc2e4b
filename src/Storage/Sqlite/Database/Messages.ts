/**
 * What a database and its writer send each other, in one thread or across two. Between threads, groups of writes are
 * packed: to clone one text and one list of numbers takes a third of the time that it takes to clone the objects that
 * they stand for.
 */
import type { UnavailableCause } from "./DatabaseError.ts"

/** Background work that a database may have, in portions of one transaction each. */
export type Task = "expire" | "trim"

/** Times are epoch milliseconds; a limit bounds what one transaction does. */
export type Request<W> =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<W>; readonly now: number }
  /** Deletes what had expired at a time, or removes what is older than it. */
  | { readonly kind: Task; readonly time: number; readonly limit: number }
  /** Copies the write-ahead log into the database and truncates it, unless readers of old snapshots prevent it. */
  | { readonly kind: "checkpoint" }
  /** Asks whether a write could be committed. */
  | { readonly kind: "probe" }
  /** Opens the file that has the database's name now; all readers have been closed. */
  | { readonly kind: "reopen" }
  /** Closes the file. */
  | { readonly kind: "close" }

/** Why one write of a group was not committed; the reason of a defect has its stack. */
export interface WriteFailure {
  readonly _tag: "Failed" | "Defect"
  readonly reason: string
}

export interface Done<O> {
  readonly _tag: "Done"
  /** For a commit, one for each write. */
  readonly outcomes: ReadonlyArray<O | WriteFailure>
  /** For a task, how many records it made or removed. */
  readonly count: number
  /** The newest sequence number; 0 where the database has none. */
  readonly lastSeq: number
  /** The size of the write-ahead log. */
  readonly logBytes: number
  /** Which file the writer has open. */
  readonly databaseId: string | undefined
  /** The epoch of the log; `""` where the database has none. */
  readonly epoch: string
}

/** Nothing was done, or it is not known whether it was. */
export interface Unavailable {
  readonly _tag: "Unavailable"
  readonly cause: UnavailableCause
  readonly reason: string
}

export type Reply<O> = Done<O> | Unavailable

/** How the writes and outcomes of a database are packed, one by one. */
export interface Codec<W, O> {
  /**
   * Returns false, having added nothing, for a write that is to be cloned as it is. A packed one begins with a number
   * that is not negative.
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

export const packRequest = <W, O>(codec: Codec<W, O>, request: Request<W>): PackedRequest<W> =>
  request.kind === "commit"
    ? { kind: "commit", now: request.now, packed: pack(request.writes, codec.packWrite) }
    : request

export const unpackRequest = <W, O>(codec: Codec<W, O>, request: PackedRequest<W>): Request<W> =>
  request.kind === "commit"
    ? { kind: "commit", now: request.now, writes: unpack(request.packed, codec.unpackWrite) }
    : request

export const packReply = <W, O>(codec: Codec<W, O>, reply: Reply<O>): PackedReply<O> => {
  if (reply._tag === "Unavailable") return reply
  const { outcomes, ...rest } = reply
  // What is spread comes last: a literal that adds to it leaves a hidden class behind in V8's old space each time.
  return { packed: pack(outcomes, codec.packOutcome), ...rest }
}

export const unpackReply = <W, O>(codec: Codec<W, O>, reply: PackedReply<O>): Reply<O> => {
  if (reply._tag === "Unavailable") return reply
  const { packed, ...rest } = reply
  return { outcomes: unpack<O | WriteFailure>(packed, codec.unpackOutcome), ...rest }
}

/** Items as texts end to end, and numbers, which include the lengths of the texts. */
interface Packed<A> {
  readonly text: string
  readonly numbers: Float64Array
  /** The items that are cloned as they are, in order. */
  readonly others: ReadonlyArray<A>
}

/** Stands among the numbers for an item of `others`. */
const other = -1

/** A longer text is not packed: V8 limits the length of strings to about four times this. */
const maxTextLength = 128 * 1024 * 1024

/** Packs items, or returns them as they are where they do not have their types, or their texts are too long. */
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
  if (!packer.isPackable || packer.length > maxTextLength) return items
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
  isPackable = true

  /** Adds a text and its length. A value of another type makes the items unpackable. */
  text(text: string): void {
    if (typeof text !== "string") {
      this.isPackable = false
      return
    }
    this.texts.push(text)
    this.numbers.push(text.length)
    this.length += text.length
  }

  number(number: number): void {
    this.numbers.push(number)
  }

  /** Notes whether a value has the type that it should have. */
  check(isValid: boolean): void {
    this.isPackable &&= isValid
  }
}

/** Reads what a `Packer` was given, in the same order. */
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

  /** Reads the next number if it is this one. Returns whether it is. */
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
