/**
 * What a WebSocket holds of a message that has not arrived whole. `ws` reports whole messages only, so this reads
 * the heads of the frames (RFC 6455, 5.2) as they arrive.
 */

/** What each fragment, and each chunk of an unfinished frame, costs in the heap in addition to its bytes. */
const pieceBytes = 128

/** Fragments beyond the allowed number must have this many bytes of payload on average. */
const fragmentBytes = 512

/** The opcodes from this one on are those of control frames, which may come between the fragments of a message. */
const firstControl = 8

export class UnfinishedMessage {
  #payload = 0
  #fragments = 0
  /** Chunks that have arrived since the current frame began. */
  #chunks = 0

  /** Bytes of the head of the current frame that were read, or -1 in its payload. */
  #headRead = 0
  #headLength = 2
  #maskLength = 0
  #isLast = false
  #isControl = false
  /** The length of the current payload while the head is read, and what is missing of it after that. */
  #missing = 0

  /** Bytes of memory that it holds, about; 0 between two messages. */
  get bytes(): number {
    return this.#payload + pieceBytes * (this.#fragments + this.#chunks)
  }

  /** Whether it is cut into too many fragments, of which `allowed` may be of any size. */
  hasTooManyFragments(allowed: number): boolean {
    return this.#fragments > allowed && this.#payload < fragmentBytes * (this.#fragments - allowed)
  }

  /** Reads the bytes that arrive next. */
  read(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#headRead >= 0) this.#readHead(chunk[at++]!)
      else {
        const count = Math.min(this.#missing, chunk.length - at)
        at += count
        this.#missing -= count
        if (!this.#isControl) this.#payload += count
      }
      if (this.#headRead === -1 && this.#missing === 0) this.#endFrame()
    }
    if (this.#headRead !== 0) this.#chunks++
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

  #endFrame(): void {
    this.#headRead = 0
    this.#chunks = 0
    if (this.#isControl) return
    if (this.#isLast) {
      this.#payload = 0
      this.#fragments = 0
    } else this.#fragments++
  }
}
