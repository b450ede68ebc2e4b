/** Bounds of the sizes of pages of the change log, so that most pages are read without a pass over their sizes. */

/** The number of records of a block. */
export const blockLength = 256

/** The maximum number of blocks that are remembered, in about 1 MiB. */
const maxBlocks = 16_384

/** Remembers the sizes of blocks. A record never changes, and a block from which records were removed is smaller. */
export class LogSizes {
  private readonly blocks = new Map<number, number>()

  /** @param sizeOf returns the bytes of the values of the records after one `seq`, up to another */
  constructor(private readonly sizeOf: (after: number, upTo: number) => number) {}

  /** The bytes of the values of these records, or more. `last` is the last `seq` of the log. */
  bound(after: number, upTo: number, last: number): number {
    let size = 0
    for (let start = after - (after % blockLength); start < upTo; start += blockLength) {
      // The last block may still grow.
      if (start + blockLength > last) return size + this.sizeOf(Math.max(start, after), upTo)
      size += this.blocks.get(start) ?? this.measure(start)
    }
    return size
  }

  private measure(start: number): number {
    const size = this.sizeOf(start, start + blockLength)
    if (this.blocks.size >= maxBlocks) this.blocks.clear()
    this.blocks.set(start, size)
    return size
  }
}
