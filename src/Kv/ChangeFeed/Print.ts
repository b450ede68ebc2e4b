import type { PrintedPage } from "../ChangeLog.ts"
import type { EncodedPage } from "./Page.ts"

const head = '{"changes":'

/**
 * Characters of an answer from which on it is kept as bytes. Node copies a text for each client that does not take it at
 * once; bytes lie in memory once for all who are sent them.
 */
const largeText = 16_384

const answer = (text: string): string | Uint8Array => (text.length < largeText ? text : Buffer.from(text))

/** A page of which there is only the whole answer to a poll, in one piece. */
export class Print implements EncodedPage {
  private constructor(
    readonly answer: string | Uint8Array,
    readonly count: number,
    readonly lastSeq: number
  ) {}

  static of({ changes, lastSeq }: PrintedPage): Print {
    return new Print(answer(`${head}[${changes.join(",")}],"lastSeq":${lastSeq}}`), changes.length, lastSeq)
  }

  get changes(): string {
    const text = typeof this.answer === "string" ? this.answer : Buffer.from(this.answer).toString()
    return text.slice(head.length, text.lastIndexOf(","))
  }

  /** About how many bytes it comes to. */
  get weight(): number {
    return 256 + (typeof this.answer === "string" ? 2 : 1) * this.answer.length
  }
}

const made = new WeakMap<EncodedPage, string | Uint8Array>()

/** The answer to a poll, made once for all who are sent it. */
export const answerOf = (page: EncodedPage): string | Uint8Array => {
  if (page instanceof Print) return page.answer
  const known = made.get(page)
  if (known !== undefined) return known
  const text = answer(`${head}${page.changes},"lastSeq":${page.lastSeq}}`)
  if (typeof text !== "string") made.set(page, text)
  return text
}
