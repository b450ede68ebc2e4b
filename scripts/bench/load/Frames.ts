const text = 0x1
const ping = 0x9

/** Parses the text messages of a WebSocket server (RFC 6455, 5.2), which are unfragmented and not masked. */
export class Frames {
  private left = 0
  private opcode = 0
  private kept: Buffer | undefined
  private payload: Array<Buffer> = []

  /** `onText` gets the payload only while `keepsPayload` returns true. */
  constructor(
    private readonly onText: (payload: string) => void,
    private readonly onPing: () => void,
    private readonly keepsPayload: () => boolean
  ) {}

  /** Parses received bytes; the buffer may be reused afterwards. */
  push(arrived: Buffer): void {
    const bytes = this.kept === undefined ? arrived : Buffer.concat([this.kept, arrived])
    this.kept = undefined
    let at = 0
    while (at < bytes.length) {
      if (this.left > 0) {
        const taken = Math.min(this.left, bytes.length - at)
        if (this.keepsPayload()) this.payload.push(Buffer.from(bytes.subarray(at, at + taken)))
        at += taken
        this.left -= taken
        if (this.left === 0) this.done()
        continue
      }
      const size = headSize(bytes, at)
      if (size === undefined || at + size > bytes.length) {
        this.kept = Buffer.from(bytes.subarray(at))
        return
      }
      this.opcode = bytes[at]! & 0x0f
      this.left = lengthOf(bytes, at)
      at += size
      if (this.left === 0) this.done()
    }
  }

  private done(): void {
    const payload = this.payload.length === 0 ? "" : Buffer.concat(this.payload).toString()
    this.payload = []
    if (this.opcode === text) this.onText(payload)
    else if (this.opcode === ping) this.onPing()
  }
}

const headSize = (bytes: Buffer, at: number): number | undefined => {
  if (at + 2 > bytes.length) return undefined
  const length = bytes[at + 1]! & 0x7f
  return length === 127 ? 10 : length === 126 ? 4 : 2
}

const lengthOf = (bytes: Buffer, at: number): number => {
  const length = bytes[at + 1]! & 0x7f
  if (length === 127) return Number(bytes.readBigUInt64BE(at + 2))
  return length === 126 ? bytes.readUInt16BE(at + 2) : length
}
