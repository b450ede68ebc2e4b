/** An inference proxy in memory, which generates the result of a function. */
import { Effect, Layer, Stream } from "effect"
import { Inference, type Prompt } from "../../Upstream/Inference.ts"

/** Generates `textOf` of each prompt, by default "A generated text". */
export const layer = (textOf: (prompt: Prompt) => string = () => "A generated text"): Layer.Layer<Inference> =>
  Layer.succeed(Inference, {
    generate: prompt => Effect.sync(() => textOf(prompt)),
    generateStream: prompt => Stream.suspend(() => Stream.fromIterable(textOf(prompt).match(/\S+\s*/g) ?? [])),
    health: Effect.succeed(true),
    probe: Effect.succeedSome({ status: "ok" as const, latencyMs: 0, statusCode: 200 })
  })
