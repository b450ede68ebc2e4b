/** The simulated inference proxy. */
import { type Duration, Effect, type Redacted, Schema } from "effect"
import type { Format } from "./Options.ts"
import { words } from "./Script.ts"
import { cut, decodeBody, json, type RoutedRequest, type SimulatedService } from "./SimulatedService.ts"

export interface Prompt {
  readonly prompt: string
  readonly maxTokens?: number | undefined
}

const maxTokensLimit = 100_000

/** A prompt that asks for a title of the text behind its first paragraph. */
const titling = /^write a title\b.*?\n\s*\n(.*)$/is

const titleWords = 6

const titleOf = (text: string): string => text.trim().split(/\s+/u).slice(0, titleWords).join(" ")

/**
 * The words that are generated: `count` words for `/long <count>`, the first words of the text for a prompt for a title,
 * and otherwise an echo of the prompt with characters of one to four bytes.
 */
export const tokens = ({ prompt, maxTokens = maxTokensLimit }: Prompt): ReadonlyArray<string> => {
  const long = /^\/long (\d+)/.exec(prompt)
  const count = Math.min(maxTokensLimit, maxTokens)
  if (long !== null) return Array.from({ length: Math.min(count, Number(long[1])) }, (_, i) => `${i + 1} `)
  const titled = titling.exec(prompt)?.[1]
  if (titled !== undefined) return words(titleOf(titled), maxTokensLimit).slice(0, count)
  return words(`Écho de «${prompt}» 回声 🌊`, maxTokensLimit).slice(0, count)
}

/** The members of an event that may hold its text. */
const members = ["text", "delta", "content"] as const

/** An event in one of the forms that the HTML standard allows. */
const serverSentEvent = (token: string, i: number): string => {
  const value = { [members[i % members.length]!]: token }
  const newline = i % 2 === 0 ? "\n" : "\r\n"
  // JSON with line breaks takes several data lines.
  const lines = i % 5 === 4 ? JSON.stringify(value, null, 1).split("\n") : [JSON.stringify(value)]
  const comment = i % 4 === 0 ? `: ${i}${newline}` : ""
  return `${comment}${lines.map(line => `data: ${line}${newline}`).join("")}${newline}`
}

/** A text as Server-Sent Events. A malformed one has an event in its middle that is not JSON. */
export const serverSentEvents = function* (text: ReadonlyArray<string>, malformed: boolean): Generator<Uint8Array> {
  const middle = text.length >> 1
  for (const [i, token] of text.entries()) {
    if (malformed && i === middle) yield Buffer.from('data: {"text": \n\n')
    yield Buffer.from(serverSentEvent(token, i))
  }
  yield Buffer.from("data: [DONE]\n\n")
}

/** A plain text. A malformed one has bytes in its middle that are not UTF-8. */
export const plainText = function* (text: ReadonlyArray<string>, malformed: boolean): Generator<Uint8Array> {
  const middle = text.length >> 1
  for (const [i, token] of text.entries()) {
    if (malformed && i === middle) yield Buffer.from([0xc3, 0x28, 0xff])
    yield Buffer.from(token)
  }
}

export interface InferenceOptions {
  readonly key: Redacted.Redacted | undefined
  readonly format: Format
  readonly chunkSizes: readonly [number, ...Array<number>]
  readonly pace: Duration.DurationInput
  readonly bodyBytes: number
}

const GenerateRequest = Schema.Struct({
  prompt: Schema.String,
  maxTokens: Schema.optional(Schema.Int.pipe(Schema.positive())),
  model: Schema.optional(Schema.String)
})

const isPlain = (format: Format, accept: string | undefined): boolean =>
  format === "text" || (format === "accept" && /text\/plain/i.test(accept ?? "") && !/event-stream/i.test(accept ?? ""))

export const make = ({ key, format, chunkSizes, pace, bodyBytes }: InferenceOptions): SimulatedService => ({
  service: "inference",
  key,
  handle: ({ operation, request, plan }: RoutedRequest) =>
    Effect.gen(function* () {
      if (operation !== "generate") return json(200, { status: "ok" })
      const text = tokens(yield* decodeBody(request, bodyBytes, GenerateRequest))
      const plain = isPlain(format, request.headers.accept)
      const bytes = plain ? plainText(text, plan.malformed) : serverSentEvents(text, plan.malformed)
      const type = plain ? "text/plain; charset=utf-8" : "text/event-stream; charset=utf-8"
      return {
        status: 200,
        headers: { "content-type": type, "cache-control": "no-store" },
        pieces: cut(bytes, chunkSizes),
        pace
      }
    })
})
