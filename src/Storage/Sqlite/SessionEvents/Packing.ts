import type { WriteFailure } from "../Database/Messages.ts"
import { type Codec, type Packed, Packer, Unpacker } from "../Database/Messages.ts"
import type { EventOutcome, EventWrite } from "./Writer.ts"

/**
 * A group of writes. For each append the packed text has its session, epoch and recovery state (with a length of -1 for
 * none), the `seq` before it, its time, the number of its events, and these. A single {@link unpacked} stands for another
 * write.
 */
interface PackedWrites extends Packed {
  /** The other writes, in order. */
  readonly others: ReadonlyArray<EventWrite>
}

interface PackedOutcomes {
  readonly writes: number
  /** By the position of the write in the group: all but appends that were stored. */
  readonly others: ReadonlyMap<number, EventOutcome | WriteFailure>
}

const unpacked = -1

const stored: EventOutcome = { _tag: "Stored", history: undefined }

const pack = (writes: ReadonlyArray<EventWrite>): PackedWrites | ReadonlyArray<EventWrite> => {
  const packer = new Packer()
  const others: Array<EventWrite> = []
  for (const write of writes) {
    // Appends with receipts are few.
    if (write.op !== "append" || write.receipt !== undefined || write.revoked !== undefined) {
      packer.number(unpacked)
      others.push(write)
      continue
    }
    const { after, recoveryState, epoch, session, texts, timestamp } = write
    packer.text(session)
    packer.text(epoch)
    if (recoveryState === null) packer.number(-1)
    else packer.text(recoveryState)
    packer.number(after)
    packer.number(timestamp)
    packer.number(texts.length)
    for (const text of texts) packer.text(text)
  }
  const packed = packer.finish()
  return packed === undefined ? writes : { others, ...packed }
}

const unpack = (packed: PackedWrites): ReadonlyArray<EventWrite> => {
  const unpacker = new Unpacker(packed)
  const writes: Array<EventWrite> = []
  let other = 0
  while (unpacker.hasMore) {
    const length = unpacker.number()
    if (length === unpacked) {
      writes.push(packed.others[other++]!)
      continue
    }
    const session = unpacker.text(length)
    const epoch = unpacker.text()
    const recoveryLength = unpacker.number()
    const recoveryState = recoveryLength === -1 ? null : unpacker.text(recoveryLength)
    const after = unpacker.number()
    const timestamp = unpacker.number()
    const texts: Array<string> = []
    for (let left = unpacker.number(); left > 0; left--) texts.push(unpacker.text())
    writes.push({ op: "append", session, epoch, after, timestamp, texts, recoveryState })
  }
  return writes
}

/** How writes of the session database and their outcomes go between threads. */
export const codec: Codec<EventWrite, EventOutcome, PackedWrites, PackedOutcomes> = {
  pack,
  unpack,
  packOutcomes: outcomes => {
    const others = new Map<number, EventOutcome | WriteFailure>()
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome._tag !== "Stored" || outcome.history !== undefined) others.set(index, outcome)
    }
    return { writes: outcomes.length, others }
  },
  unpackOutcomes: ({ others, writes }) => Array.from({ length: writes }, (_, index) => others.get(index) ?? stored)
}
