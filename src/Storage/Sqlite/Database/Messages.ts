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
}

/** Nothing was done, or it is not known whether it was. */
export interface Unavailable {
  readonly _tag: "Unavailable"
  readonly cause: UnavailableCause
  readonly reason: string
}

export type Reply<O> = Done<O> | Unavailable

/** How the writes and outcomes of a database are packed. What cannot be packed stays an array. */
export interface Codec<W, O, PackedWrites = unknown, PackedOutcomes = unknown> {
  pack(writes: ReadonlyArray<W>): PackedWrites | ReadonlyArray<W>
  unpack(packed: PackedWrites): ReadonlyArray<W>
  packOutcomes(outcomes: ReadonlyArray<O | WriteFailure>): PackedOutcomes
  unpackOutcomes(packed: PackedOutcomes): ReadonlyArray<O | WriteFailure>
}

/** A request as it is posted. */
export type PackedRequest<W> =
  | Exclude<Request<W>, { kind: "commit" }>
  | { readonly kind: "commit"; readonly now: number; readonly packed: unknown }

/** A reply as it is posted. */
export type PackedReply = Unavailable | (Omit<Done<never>, "outcomes"> & { readonly packed: unknown })

export const packRequest = <W, O>(codec: Codec<W, O>, request: Request<W>): PackedRequest<W> =>
  request.kind === "commit" ? { kind: "commit", now: request.now, packed: codec.pack(request.writes) } : request

export const unpackRequest = <W, O>(codec: Codec<W, O>, request: PackedRequest<W>): Request<W> => {
  if (request.kind !== "commit") return request
  const { now, packed } = request
  return { kind: "commit", now, writes: Array.isArray(packed) ? packed : codec.unpack(packed) }
}

export const packReply = <W, O>(codec: Codec<W, O>, reply: Reply<O>): PackedReply => {
  if (reply._tag === "Unavailable") return reply
  const { outcomes, ...rest } = reply
  // What is spread comes last: a literal that adds to it leaves a hidden class behind in V8's old space each time.
  return { packed: codec.packOutcomes(outcomes), ...rest }
}

export const unpackReply = <W, O>(codec: Codec<W, O>, reply: PackedReply): Reply<O> => {
  if (reply._tag === "Unavailable") return reply
  const { packed, ...rest } = reply
  return { outcomes: codec.unpackOutcomes(packed), ...rest }
}

/** A longer text is not packed: V8 limits the length of strings to about four times this. */
const maxTextLength = 128 * 1024 * 1024

/** Texts end to end, and numbers, which include the lengths of the texts. */
export interface Packed {
  readonly text: string
  readonly numbers: Float64Array
}

export class Packer {
  private readonly texts: Array<string> = []
  private readonly numbers: Array<number> = []
  private length = 0
  private isPackable = true

  /** Adds a text and its length. A value of another type makes the group unpackable. */
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

  /** The packed group; nothing where its values do not have their types, or are too long together. */
  finish(): Packed | undefined {
    if (!this.isPackable || this.length > maxTextLength) return undefined
    return { text: this.texts.join(""), numbers: new Float64Array(this.numbers) }
  }
}

/** Reads what a `Packer` was given, in the same order. */
export class Unpacker {
  private next = 0
  private start = 0

  constructor(private readonly packed: Packed) {}

  get hasMore(): boolean {
    return this.next < this.packed.numbers.length
  }

  number(): number {
    return this.packed.numbers[this.next++]!
  }

  text(length = this.number()): string {
    this.start += length
    return this.packed.text.slice(this.start - length, this.start)
  }
}
