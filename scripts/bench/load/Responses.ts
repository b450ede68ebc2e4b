const headEnd = Buffer.from("\r\n\r\n")
const lineEnd = Buffer.from("\r\n")

type Phase = "head" | "body" | "chunkSize" | "chunk" | "trailer"

/**
 * Finds the ends of HTTP/1.1 responses in the bytes of a connection, and reads their status. Bodies are skipped.
 *
 * It supports what the servers under test use: `content-length` and `transfer-encoding: chunked`.
 */
export class Responses {
  private phase: Phase = "head"
  private status = 0
  /** Bytes of the body or chunk that have not arrived. */
  private left = 0
  /** The start of an incomplete head or line. */
  private kept: Buffer | undefined

  constructor(private readonly onResponse: (status: number) => void) {}

  /** Parses received bytes; the buffer may be reused afterwards. */
  push(arrived: Buffer): void {
    const bytes = this.kept === undefined ? arrived : Buffer.concat([this.kept, arrived])
    this.kept = undefined
    let at = 0
    while (at < bytes.length) {
      if (this.phase === "body" || this.phase === "chunk") {
        const taken = Math.min(this.left, bytes.length - at)
        at += taken
        this.left -= taken
        if (this.left === 0) this.partDone()
        continue
      }
      const mark = this.phase === "head" ? headEnd : lineEnd
      const end = bytes.indexOf(mark, at)
      if (end === -1) {
        this.kept = Buffer.from(bytes.subarray(at))
        return
      }
      this.text(bytes.toString("latin1", at, end))
      at = end + mark.length
    }
  }

  private text(text: string): void {
    if (this.phase === "head") this.head(text)
    else if (this.phase === "chunkSize") {
      const size = Number.parseInt(text, 16)
      // The line break after a chunk counts as part of it.
      this.left = size + 2
      this.phase = size === 0 ? "trailer" : "chunk"
    } else if (text === "") this.done()
  }

  private head(text: string): void {
    this.status = Number(text.slice(9, 12))
    const length = /\r\ncontent-length: *(\d+)/i.exec(text)
    if (length !== null) {
      this.left = Number(length[1])
      this.phase = "body"
      if (this.left === 0) this.done()
    } else if (/\r\ntransfer-encoding: *chunked/i.test(text)) this.phase = "chunkSize"
    else this.done()
  }

  private partDone(): void {
    if (this.phase === "chunk") this.phase = "chunkSize"
    else this.done()
  }

  private done(): void {
    this.phase = "head"
    this.onResponse(this.status)
  }
}
