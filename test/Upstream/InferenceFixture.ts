/** Inference clients over a stub, and bodies of their answers. */
import { it } from "@effect/vitest"
import { Context, Effect, Layer, Option, Redacted, Stream } from "effect"
import * as Inference from "../../src/Upstream/Inference.ts"
import * as InferenceClient from "../../src/Upstream/InferenceClient.ts"
import { given } from "../Given.ts"
import * as Stub from "./Stub.ts"

const settings: Inference.Settings = { url: "http://inference.test", apiKey: Option.some(Redacted.make("key")) }

export const withInference = <A, E>(
  stub: ReturnType<typeof Stub.make>,
  use: (inference: typeof Inference.Inference.Service) => Effect.Effect<A, E>,
  options = settings
) =>
  Effect.flatMap(Inference.Inference, use).pipe(
    Effect.provide(Layer.provide(InferenceClient.layer(options), stub.layer))
  )

type Answers = Parameters<typeof Stub.make>[0]

/** Tests of a client whose requests get these answers. */
export const inferred = given(it.scoped, (answers: Answers = [Stub.refused]) =>
  Effect.gen(function* () {
    const stub = Stub.make(answers)
    const context = yield* Layer.build(Layer.provide(InferenceClient.layer(settings), stub.layer))
    return { stub, ...Context.get(context, Inference.Inference) }
  })
)

export const generate = (stub: ReturnType<typeof Stub.make>) =>
  withInference(stub, inference => Effect.either(inference.generate({ prompt: "hi" })))

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

/** A body in chunks of one byte, so that every code point and every line is split. */
export const inBytes = (text: string) => Stream.fromIterable([...bytes(text)].map(byte => Uint8Array.of(byte)))

export const events = (text: string) => Stub.streaming("text/event-stream; charset=utf-8", inBytes(text))

export const plain = (text: string) => Stub.streaming("text/plain", inBytes(text))

export const collected = (answer: Parameters<typeof Stub.make>[0][0]) => generate(Stub.make([answer]))
