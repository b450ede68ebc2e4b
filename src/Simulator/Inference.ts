import type { Duration, Redacted } from "effect"
import { Effect, Schema } from "effect"
import * as Answer from "./Answer.ts"
import type { Exchange, Played } from "./Exchange.ts"
import * as Generation from "./Generation.ts"
import type { Format } from "./Options.ts"

/** How the inference proxy behaves. */
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

/** The inference proxy. */
export const make = ({ key, format, chunkSizes, pace, bodyBytes }: InferenceOptions): Played => ({
  service: "inference",
  key,
  carryOut: ({ operation, request, plan }: Exchange) =>
    Effect.gen(function* () {
      if (operation !== "generate") return Answer.json(200, { status: "ok" })
      const tokens = Generation.tokens(yield* Answer.decodeBody(request, bodyBytes, GenerateRequest))
      const plain = isPlain(format, request.headers.accept)
      const bytes = plain
        ? Generation.plainText(tokens, plan.malformed)
        : Generation.serverSentEvents(tokens, plan.malformed)
      const type = plain ? "text/plain; charset=utf-8" : "text/event-stream; charset=utf-8"
      return {
        status: 200,
        headers: { "content-type": type, "cache-control": "no-store" },
        pieces: Generation.recut(bytes, chunkSizes),
        pace
      }
    })
})
