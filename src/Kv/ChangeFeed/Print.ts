import type { PrintedPage } from "../ChangeLog.ts"
import type { EncodedPage } from "./Page.ts"

const head = '{"changes":'

/** A page of which there is only the text: that of the whole answer to a poll, in one piece. */
export class Print implements EncodedPage {
  private constructor(
    readonly answer: string,
    readonly count: number,
    readonly lastSeq: number
  ) {}

  static of({ changes, lastSeq }: PrintedPage): Print {
    return new Print(`${head}[${changes.join(",")}],"lastSeq":${lastSeq}}`, changes.length, lastSeq)
  }

  get changes(): string {
    return this.answer.slice(head.length, this.answer.lastIndexOf(","))
  }

  /** About how many bytes it comes to. */
  get weight(): number {
    return 256 + 2 * this.answer.length
  }
}

/** The answer to a poll. */
export const answerOf = (page: EncodedPage): string =>
  page instanceof Print ? page.answer : `${head}${page.changes},"lastSeq":${page.lastSeq}}`
