import { backslash, closeBrace, closeBracket, openBrace, openBracket, quote } from "./Codes.ts"

/**
 * Watches the nesting of JSON while its bytes arrive, so that a body of brackets is refused long before it is whole.
 *
 * It knows strings from brackets and nothing else of the grammar, which is the reader's to check.
 */
export class DepthGuard {
  readonly #most: number
  #depth = 0
  #isInString = false
  #isEscaped = false

  /** For text of at most `most` levels of arrays and objects. */
  constructor(most: number) {
    this.#most = most
  }

  /** Whether the text stays within its levels with these bytes of it. */
  admits(bytes: Uint8Array): boolean {
    let depth = this.#depth
    let isInString = this.#isInString
    let at = this.#isEscaped ? 1 : 0
    for (; at < bytes.length; at++) {
      const code = bytes[at]
      if (isInString) {
        if (code === backslash) at++
        else if (code === quote) isInString = false
      } else if (code === quote) isInString = true
      else if (code === closeBracket || code === closeBrace) depth--
      else if ((code === openBracket || code === openBrace) && ++depth > this.#most) return false
    }
    this.#depth = depth
    this.#isInString = isInString
    this.#isEscaped = at > bytes.length
    return true
  }
}
