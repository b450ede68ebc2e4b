/**
 * Collects chunks of bytes in one buffer that grows.
 *
 * Chunks are copied, so that the memory is proportional to the bytes: a list of one-byte chunks would take hundreds
 * of bytes for each. A single chunk is not copied.
 */
export class GrowingBytes {
  #buffer: Buffer | undefined
  #length = 0
  readonly #most: number

  /** `most` bounds the capacity of the buffer; the caller checks the bytes that it adds. */
  constructor(most: number) {
    this.#most = most
  }

  /** The number of bytes added. */
  get length(): number {
    return this.#length
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

  /** Returns all bytes; the buffer is empty afterwards. */
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

/** The initial capacity, in bytes. */
const smallest = 4096

const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
