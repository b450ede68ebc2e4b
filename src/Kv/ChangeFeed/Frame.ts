import type { EncodedPage } from "./Page.ts"

/** A text message as the one frame that a server sends it in: final and not masked (RFC 6455, 5.2). */
export const textFrame = (text: string): Buffer => {
  const length = Buffer.byteLength(text)
  const head = length < 126 ? 2 : length < 65_536 ? 4 : 10
  const frame = Buffer.allocUnsafe(head + length)
  frame[0] = 0x81
  if (head === 2) frame[1] = length
  else if (head === 4) {
    frame[1] = 126
    frame.writeUInt16BE(length, 2)
  } else {
    frame[1] = 127
    frame.writeBigUInt64BE(BigInt(length), 2)
  }
  frame.write(text, head)
  return frame
}

const made = new WeakMap<EncodedPage, Buffer>()

/** A page as a frame, made once for all who are sent it. */
export const pageFrame = (page: EncodedPage): Buffer => {
  const known = made.get(page)
  if (known !== undefined) return known
  const frame = textFrame(`{"type":"changes","changes":${page.changes},"lastSeq":${page.lastSeq}}`)
  made.set(page, frame)
  return frame
}

/** What an idle follower is sent: how far the log was scanned for it. */
export const heartbeatFrame = (lastSeq: number): Buffer => textFrame(`{"type":"heartbeat","lastSeq":${lastSeq}}`)
