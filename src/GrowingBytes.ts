/**
 * Collects bytes that arrive in pieces into one buffer.
 *
 * Each piece is copied, so that what is held depends on the bytes and not on the number of pieces: a list of
 * one-byte pieces would take hundreds of bytes of memory for each. A first piece that turns out to be the only one is
 * handed out as it came.
 */
export class GrowingBytes {
  #buffer: Buffer | undefined
  #length = 0
  readonly #most: number

  /** For at most `most` bytes, which whoever adds has to check: it only keeps the buffer from growing beyond. */
  constructor(most: number) {
    this.#most = most
  }

  /** How many bytes were added. */
  get length(): number {
    return this.#length
  }

  /** What was added so far, to be looked at before more is. */
  get view(): Uint8Array {
    return this.#buffer?.subarray(0, this.#length) ?? none
  }

  add(piece: Uint8Array): void {
    const before = this.#length
    this.#length += piece.length
    if (this.#buffer === undefined) {
      this.#buffer = asBuffer(piece)
      return
    }
    if (this.#length > this.#buffer.length) this.#grow(before)
    this.#buffer.set(piece, before)
  }

  /** All bytes; nothing can be added after that. */
  take(): Buffer {
    const bytes = this.#buffer?.subarray(0, this.#length) ?? Buffer.alloc(0)
    this.#buffer = undefined
    this.#length = 0
    return bytes
  }

  #grow(used: number): void {
    const size = Math.max(this.#length, Math.min(this.#most, Math.max(smallest, 2 * this.#length)))
    const grown = Buffer.allocUnsafeSlow(size)
    grown.set(this.#buffer!.subarray(0, used))
    this.#buffer = grown
  }
}

/** Bytes of the first buffer that is made to be added to. */
const smallest = 4096

const none = new Uint8Array(0)

const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
