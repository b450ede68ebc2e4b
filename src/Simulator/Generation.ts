/**
 * What the simulated inference proxy generates: text that is made from the prompt, in bytes that are cut where
 * it hurts.
 */
import { words } from "./Script.ts"

/** What a generation is asked with. */
export interface Prompt {
  readonly prompt: string
  readonly maxTokens?: number | undefined
}

const maxTokensLimit = 100_000

/** A prompt that asks for a title of the text behind its first paragraph. */
const titling = /^write a title\b.*?\n\s*\n(.*)$/is

const titleWords = 6

/** The first words of a text, which a model would have made something better of. */
const titleOf = (text: string): string => text.trim().split(/\s+/u).slice(0, titleWords).join(" ")

/**
 * The words that are generated. `/long <count>` asks for so many, a prompt for a title gets the first words of what
 * is to be titled, and any other is echoed between characters of one to four bytes.
 */
export const tokens = ({ prompt, maxTokens = maxTokensLimit }: Prompt): ReadonlyArray<string> => {
  const long = /^\/long (\d+)/.exec(prompt)
  const count = Math.min(maxTokensLimit, maxTokens)
  if (long !== null) return Array.from({ length: Math.min(count, Number(long[1])) }, (_, i) => `${i + 1} `)
  const titled = titling.exec(prompt)?.[1]
  if (titled !== undefined) return words(titleOf(titled), maxTokensLimit).slice(0, count)
  return words(`Écho de «${prompt}» 回声 🌊`, maxTokensLimit).slice(0, count)
}

/** The JSON members that carry text, all of which clients must know. */
const members = ["text", "delta", "content"] as const

/** One event in one of the notations that the HTML standard allows. */
const serverSentEvent = (token: string, i: number): string => {
  const value = { [members[i % members.length]!]: token }
  const newline = i % 2 === 0 ? "\n" : "\r\n"
  // JSON may have line breaks between its parts, and then takes several data lines.
  const lines = i % 5 === 4 ? JSON.stringify(value, null, 1).split("\n") : [JSON.stringify(value)]
  const comment = i % 4 === 0 ? `: ${i}${newline}` : ""
  return `${comment}${lines.map(line => `data: ${line}${newline}`).join("")}${newline}`
}

/** A text as Server-Sent Events; a malformed one has an event in its middle that is no JSON. */
export const serverSentEvents = function* (text: ReadonlyArray<string>, malformed: boolean): Generator<Uint8Array> {
  const middle = text.length >> 1
  for (const [i, token] of text.entries()) {
    if (malformed && i === middle) yield Buffer.from('data: {"text": \n\n')
    yield Buffer.from(serverSentEvent(token, i))
  }
  yield Buffer.from("data: [DONE]\n\n")
}

/** A text as it is; a malformed one has bytes in its middle that are no UTF-8. */
export const plainText = function* (text: ReadonlyArray<string>, malformed: boolean): Generator<Uint8Array> {
  const middle = text.length >> 1
  for (const [i, token] of text.entries()) {
    if (malformed && i === middle) yield Buffer.from([0xc3, 0x28, 0xff])
    yield Buffer.from(token)
  }
}

/** The same bytes in pieces of the given sizes, in rotation, whatever the pieces were before; a size is at least 1. */
export const recut = function* (
  pieces: Iterable<Uint8Array>,
  sizes: readonly [number, ...Array<number>]
): Generator<Uint8Array> {
  let kept: Uint8Array = Buffer.alloc(0)
  let i = 0
  const next = () => Math.max(1, sizes[i % sizes.length]!)
  for (const piece of pieces) {
    kept = kept.length === 0 ? piece : Buffer.concat([kept, piece])
    for (let size = next(); kept.length >= size; size = next()) {
      yield kept.subarray(0, size)
      kept = kept.subarray(size)
      i++
    }
  }
  if (kept.length > 0) yield kept
}
