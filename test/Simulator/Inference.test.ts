import * as net from "node:net"
import { expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, Redacted } from "effect"
import * as Titles from "../../src/Gateway/Sessions/Session/Titles.ts"
import { plainText, serverSentEvents, tokens } from "../../src/Simulator/Inference.ts"
import { cut } from "../../src/Simulator/SimulatedService.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { codePoint } from "../CodePoint.ts"
import { times } from "../Scale.ts"
import { outcome, request } from "./Fixture.ts"

const runs = times(100)

const generate = (inferenceUrl: string, prompt: string, headers: Readonly<Record<string, string>> = {}, more = {}) =>
  request(`${inferenceUrl}/api/v1/generate/stream`, { body: { prompt, ...more }, headers })

/** Reads Server-Sent Events by the HTML standard's rules, except `id`, `event` and `retry`. */
const dataOf = (text: string): ReadonlyArray<string> => {
  const events: Array<string> = []
  let lines: Array<string> = []
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === "") {
      if (lines.length > 0) events.push(lines.join("\n"))
      lines = []
    } else if (line.startsWith("data: ")) lines.push(line.slice(6))
  }
  return events
}

const textOf = (data: ReadonlyArray<string>): string =>
  data
    .filter(text => text !== "[DONE]")
    .map(text => Object.values(JSON.parse(text) as Record<string, string>).join())
    .join("")

it.scopedLive("generates Server-Sent Events or plain text, as the client accepts", () =>
  Effect.gen(function* () {
    const { inferenceUrl, state } = yield* Simulator.make()
    const expected = "Écho de «Grüße an alle, zwölf 🦆» 回声 🌊"
    for (const accept of ["text/event-stream", "*/*", "text/event-stream, text/plain"]) {
      const reply = yield* generate(inferenceUrl, "Grüße an alle, zwölf 🦆", { accept })
      expect(reply.headers["content-type"]).toMatch(/^text\/event-stream/)
      const data = dataOf(reply.body.toString("utf8"))
      expect(data.at(-1)).toBe("[DONE]")
      expect(textOf(data)).toBe(expected)
    }
    const plain = yield* generate(inferenceUrl, "Grüße an alle, zwölf 🦆", { accept: "text/plain" })
    expect(plain.headers["content-type"]).toMatch(/^text\/plain/)
    expect(plain.body.toString("utf8")).toBe(expected)
    expect((yield* state).requests.generate).toBe(4)
  })
)

it.scopedLive("generates the configured format, whatever the client accepts", () =>
  Effect.gen(function* () {
    const { inferenceUrl } = yield* Simulator.make({ format: "text" })
    const reply = yield* generate(
      inferenceUrl,
      "/long 9",
      { accept: "text/event-stream" },
      { maxTokens: 3, model: "m" }
    )
    expect(reply.body.toString("utf8")).toBe("1 2 3 ")
  })
)

it.scopedLive("sends characters in halves", () =>
  Effect.gen(function* () {
    const { inferenceUrl } = yield* Simulator.make({ format: "text" })
    const body = JSON.stringify({ prompt: "🌊🌊🌊" })
    const { port } = new URL(inferenceUrl)
    const raw = yield* Effect.async<string>(resume => {
      const chunks: Array<Buffer> = []
      const socket = net.connect(Number(port), "127.0.0.1", () =>
        socket.write(
          `POST /api/v1/generate/stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
        )
      )
      socket.on("data", chunk => chunks.push(chunk))
      socket.on("end", () => resume(Effect.succeed(Buffer.concat(chunks).toString("latin1"))))
    })
    const pieces = [...raw.matchAll(/\r\n([0-9a-f]+)\r\n/g)]
      .map(match => Buffer.from(raw.substr(match.index + match[0].length, Number.parseInt(match[1]!, 16)), "latin1"))
      .filter(piece => piece.length > 0)
    expect(Buffer.concat(pieces).toString("utf8")).toBe("Écho de «🌊🌊🌊» 回声 🌊")
    expect(pieces.some(piece => !Buffer.from(piece.toString("utf8")).equals(piece))).toBe(true)
  })
)

it.scopedLive("asks for its bearer, but not at /health", () =>
  Effect.gen(function* () {
    const { inferenceUrl } = yield* Simulator.make({ inferenceKey: Redacted.make("key") })
    expect((yield* request(`${inferenceUrl}/health`)).status).toBe(200)
    expect((yield* generate(inferenceUrl, "a")).status).toBe(401)
    expect((yield* generate(inferenceUrl, "a", { authorization: "bearer key" })).status).toBe(200)
  })
)

it.scopedLive("names what is wrong with a request", () =>
  Effect.gen(function* () {
    const { inferenceUrl } = yield* Simulator.make()
    const url = `${inferenceUrl}/api/v1/generate/stream`
    for (const [body, named] of [
      [{ prompt: 1 }, "prompt"],
      [{}, "prompt"],
      [{ prompt: "a", maxTokens: 0 }, "maxTokens"]
    ] as const) {
      const [status, answer] = yield* outcome(url, { body })
      expect([status, JSON.stringify(answer)]).toEqual([400, expect.stringContaining(named)])
    }
    expect((yield* request(url)).status).toBe(404)
  })
)

it("what is generated says the prompt again, whole, in any notation and cut anywhere", () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 })
  fc.assert(
    fc.property(fc.string({ unit: codePoint, maxLength: 200 }), sizes, (prompt, [first = 1, ...others]) => {
      fc.pre(!prompt.startsWith("/long"))
      const text = tokens({ prompt })
      const expected = `Écho de «${prompt}» 回声 🌊`
      const plain = Buffer.concat([...cut(plainText(text, false), [first, ...others])])
      const events = Buffer.concat([...cut(serverSentEvents(text, false), [first, ...others])])
      expect(plain.toString("utf8")).toBe(expected)
      expect(textOf(dataOf(events.toString("utf8")))).toBe(expected)
    }),
    { numRuns: runs }
  )
})

it("pieces have the sizes asked for, but the last", () => {
  const pieces = cut([Buffer.alloc(5), Buffer.alloc(0), Buffer.alloc(12)], [1, 4])
  expect([...pieces].map(piece => piece.length)).toEqual([1, 4, 1, 4, 1, 4, 1, 1])
})

it("makes a title of the first words of what is to be titled", () => {
  const title = (message: string, maxTokens = 32) => tokens({ prompt: Titles.promptFor(message), maxTokens }).join("")
  expect(title("How do the tides work, and why\nare there two of them in a day?")).toBe("How do the tides work, and")
  expect(title("Hello")).toBe("Hello")
  expect(title("a\n\nb")).toBe("a b")
  expect(tokens({ prompt: "Write a poem\n\nplease" }).join("")).toContain("Write a poem")
})
