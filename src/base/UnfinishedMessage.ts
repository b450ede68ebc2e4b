/**
 * What a WebSocket holds of a message that has not arrived whole. `ws` reports whole messages only, so this reads
 * the heads of the frames (RFC 6455, 5.2) as they arrive.
 *
 * `ws` stores fragments as views of the chunks in which they came. So a chunk counts whole, with the control frames and
 * the end of an earlier message that are in it.
 */

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

/** What each fragment and each chunk costs in addition to its bytes, by measurement of the resident memory. */
const [fragmentCost, chunkCost] = [128, 512]

/** The opcodes from this one on are those of control frames, which may come between the fragments of a message. */
const firstControl = 8

export class UnfinishedMessage {
  /** What the chunks of the message hold. */
  #held = 0
  #fragments = 0

  /** Bytes of the head of the current frame that were read, or -1 in its payload. */
  #headRead = 0
  #headLength = 2
  #maskLength = 0
  #isLast = false
  #isControl = false
  /** The length of the current payload while the head is read, and what is missing of it after that. */
  #missing = 0

  /** @param fragments the number beyond which `ws` stores none and closes the connection */
  constructor(private readonly fragments: number) {}

  /** Bytes of memory that it holds, about; 0 between two messages. */
  get bytes(): number {
    return this.#held + fragmentCost * Math.min(this.#fragments, this.fragments)
  }

  /** Reads the bytes that arrive next. Returns whether a message has ended in them; the next one may be incomplete. */
  read(chunk: Buffer): boolean {
    let hasEnded = false
    let at = 0
    while (at < chunk.length) {
      if (this.#headRead >= 0) this.#readHead(chunk[at++]!)
      else {
        const count = Math.min(this.#missing, chunk.length - at)
        at += count
        this.#missing -= count
      }
      if (this.#headRead === -1 && this.#missing === 0) hasEnded = this.#endFrame() || hasEnded
    }
    if (hasEnded) this.#held = 0
    this.#held = this.#headRead === 0 && this.#fragments === 0 ? 0 : this.#held + chunk.length + chunkCost
    return hasEnded
  }

  #readHead(byte: number): void {
    const position = this.#headRead++
    if (position === 0) {
      this.#isLast = (byte & 0x80) !== 0
      this.#isControl = (byte & 0x0f) >= firstControl
    } else if (position === 1) {
      const length = byte & 0x7f
      const extended = length === 126 ? 2 : length === 127 ? 8 : 0
      const mask = (byte & 0x80) === 0 ? 0 : 4
      this.#headLength = 2 + extended + mask
      this.#missing = extended === 0 ? length : 0
      this.#maskLength = mask
    } else if (position < this.#headLength - this.#maskLength) this.#missing = this.#missing * 256 + byte
    if (position > 0 && this.#headRead === this.#headLength) this.#headRead = -1
  }

  /** Returns whether its message has ended, too. */
  #endFrame(): boolean {
    this.#headRead = 0
    if (this.#isControl) return false
    this.#fragments = this.#isLast ? 0 : this.#fragments + 1
    return this.#isLast
  }
}
