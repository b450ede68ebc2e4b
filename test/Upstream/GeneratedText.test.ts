import { describe, expect } from "@effect/vitest"
import { Either, Option, Stream } from "effect"
import { test } from "../Tests.ts"
import { bytes, collected, events, generate, inBytes, plain, withInference } from "./InferenceFixture.ts"
import * as Stub from "./Stub.ts"

describe("generate", () => {
  test.effect("sends the prompt with the bearer", function* () {
    const stub = Stub.make([plain("ok")])
    yield* withInference(stub, inference => inference.generate({ prompt: "hi", maxTokens: 5, model: "m" }))
    yield* withInference(stub, inference => inference.generate({ prompt: "hi" }))
    expect(stub.seen[0]).toMatchObject({
      method: "POST",
      url: "http://inference.test/api/v1/generate/stream",
      headers: { authorization: "Bearer key", accept: "text/event-stream, text/plain" },
      body: { prompt: "hi", maxTokens: 5, model: "m" }
    })
    expect(stub.seen[1]!.body).toEqual({ prompt: "hi" })
  })

  test.effect("takes plain text, whole whatever the cuts, and also without a content type", function* () {
    const text = "Grüße, 世界 👋🏽!\r\n"
    expect(yield* collected(plain(text))).toEqual(Either.right(text))
    expect(yield* collected(plain("\ufeffx"))).toEqual(Either.right("x"))
    expect(yield* collected(Stub.streaming("TEXT/Plain;charset=utf-8", inBytes(text)))).toEqual(Either.right(text))
    expect(yield* collected(plain(""))).toEqual(Either.right(""))
  })

  test.effect("puts U+FFFD for bytes that are no UTF-8, also at the very end", function* () {
    const body = Stream.make(Uint8Array.of(0x61, 0xff), Uint8Array.of(0xf0, 0x9f))
    expect(yield* collected(Stub.streaming("text/plain", body))).toEqual(Either.right("a\ufffd\ufffd"))
  })

  test.effect("takes Server-Sent Events up to [DONE]", function* () {
    const body = [
      ": hello\r\n\r\n",
      'data: {"text":"Grü"}\r\n\r\n',
      'data: {"delta":"ße"}\n\n',
      'event: chunk\ndata: {"content":\ndata: " 👋"}\n\n',
      'data: {"usage":{"tokens":3}}\n\n',
      'data: {"text":""}\n\n',
      "data: [DONE]\n\n",
      'data: {"text":"never"}\n\n'
    ].join("")
    expect(yield* collected(events(body))).toEqual(Either.right("Grüße 👋"))
    expect(yield* collected(events('data: {"text":"a"}\n\ndata: [DONE]'))).toEqual(Either.right("a"))
  })

  test.effect("does not wait for a body that continues after [DONE]", function* () {
    const body = Stream.concat(inBytes('data: {"text":"a"}\n\ndata: [DONE]\n\n'), Stream.never)
    const stub = Stub.make([Stub.streaming("text/event-stream", body)])
    expect(yield* generate(stub)).toEqual(Either.right("a"))
    expect(stub.seen[0]!.isAborted()).toBe(true)
  })

  test.effect("fails if the answer is not a generation", function* () {
    const endless = bytes(`data: ${"x".repeat(600 * 1024)}`)
    const failures: ReadonlyArray<readonly [Parameters<typeof Stub.make>[0][0], number, RegExp]> = [
      [events('data: {"text":"a"}\n\n'), 502, /ended before \[DONE\]/],
      [events("data: hello\n\n"), 502, /not a JSON object/],
      [events("data: [1]\n\n"), 502, /not a JSON object/],
      [events('data: {"error":{"message":"overloaded"}}\n\n'), 502, /overloaded/],
      [events('event: error\ndata: {"message":"broken"}\n\n'), 502, /broken/],
      [Stub.streaming("text/event-stream", Stream.make(endless, endless)), 502, /longer than/],
      [Stub.streaming("text/html", inBytes("<html>")), 502, /neither Server-Sent Events nor plain text/],
      [Stub.status(200, { text: "a" }), 502, /neither/],
      [Stub.status(401, { error: "bad key" }), 401, /answered 401 to generate_stream: bad key/],
      [Stub.status(429), 429, /429/],
      [Stub.refused, 502, /ECONNREFUSED/]
    ]
    for (const [answer, statusCode, message] of failures) {
      const stub = Stub.make([answer])
      const error = Option.getOrThrow(Either.getLeft(yield* generate(stub)))
      expect(error).toMatchObject({ _tag: "InferenceError", statusCode })
      expect(error.message).toMatch(message)
      expect(stub.seen).toHaveLength(1)
    }
  })

  test.effect("refuses a text that does not come to an end", function* () {
    const mebibyte = new Uint8Array(1024 * 1024).fill(0x61)
    const result = yield* collected(Stub.streaming("text/plain", Stream.repeatValue(mebibyte)))
    expect(Either.getLeft(result)).toMatchObject({ value: { statusCode: 502 } })
  })
})
