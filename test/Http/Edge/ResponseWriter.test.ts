import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, Stream } from "effect"
import { describe, expect, it } from "vitest"
import { ResponseBatcher, send } from "../../../src/Http/Edge/Exchange.ts"
import * as Reply from "../../../src/Http/Reply.ts"
import { closing, turn } from "../Server/Fixture.ts"

/** Pending answers of a server, and how their clients read them. */
const owed = async (count: number) => {
  const responses: Array<ServerResponse> = []
  let arrived = () => {}
  const server = createServer((_request, response) => {
    responses.push(response)
    if (responses.length === count) arrived()
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  closing.push(() => server.close())
  const { port } = server.address() as AddressInfo
  const all = new Promise<void>(resolve => {
    arrived = resolve
  })
  const texts = Array.from({ length: count }, async () => (await fetch(`http://127.0.0.1:${port}/`)).text())
  await all
  return { responses, texts }
}

const ended = (responses: ReadonlyArray<ServerResponse>) => responses.filter(response => response.writableEnded).length

describe("answers that are written together", () => {
  it("are written at the end of the turn in which they were made", async () => {
    const { responses, texts } = await owed(4)
    const batcher = new ResponseBatcher()
    for (const [before, ofTurn] of [
      [0, responses.slice(0, 3)],
      [3, responses.slice(3)]
    ] as const) {
      for (const response of ofTurn) batcher.end(response, "é", 2)
      expect(ended(responses)).toBe(before)
      await turn()
      expect(ended(responses)).toBe(before + ofTurn.length)
    }
    expect(await Promise.all(texts)).toEqual(["é", "é", "é", "é"])
  })

  it("are written at once when the batch is full", async () => {
    const { responses, texts } = await owed(12)
    const batcher = new ResponseBatcher()
    for (const response of responses) batcher.end(response, "body", 4)
    expect(ended(responses)).toBe(8)
    await turn()
    expect(ended(responses)).toBe(12)
    expect(await Promise.all(texts)).toEqual(Array.from({ length: 12 }, () => "body"))
  })

  it("do not wait when one of them is large, and are written in the order in which they were made", async () => {
    const { responses, texts } = await owed(2)
    const batcher = new ResponseBatcher()
    const large = "x".repeat(40_000)
    batcher.end(responses[0]!, undefined, 0)
    batcher.end(responses[1]!, large, large.length)
    expect(ended(responses)).toBe(2)
    expect((await Promise.all(texts)).sort()).toEqual(["", large])
  })

  it("do not wait for a large body to be read", async () => {
    const { responses, texts } = await owed(2)
    const batcher = new ResponseBatcher()
    batcher.end(responses[0]!, "a", 1)
    batcher.flushBefore(1000)
    expect(ended(responses)).toBe(0)
    batcher.flushBefore(40_000)
    expect(ended(responses)).toBe(1)
    batcher.end(responses[1]!, "b", 1)
    batcher.flush()
    expect(ended(responses)).toBe(2)
    expect((await Promise.all(texts)).sort()).toEqual(["a", "b"])
  })

  it("are dropped when their client has disconnected", async () => {
    const { responses, texts } = await owed(2)
    const batcher = new ResponseBatcher()
    const [gone, kept] = responses
    batcher.end(gone!, "a", 1)
    batcher.end(kept!, "b", 1)
    gone!.destroy()
    const outcomes = await Promise.allSettled(texts)
    expect(outcomes.map(outcome => outcome.status).sort()).toEqual(["fulfilled", "rejected"])
  })
})

it("a stream for a disconnected client is not started, and its resources are released", async () => {
  const { responses, texts } = await owed(1)
  const response = responses[0]!
  response.destroy()
  await Promise.allSettled(texts)
  const done: Array<string> = []
  const reply = Reply.stream(
    "text/plain",
    Stream.repeatEffect(Effect.sync(() => Buffer.from(`${done.push("begun")}`))),
    {},
    Effect.sync(() => void done.push("given back"))
  )
  send(reply, response, false, "id", new ResponseBatcher(), Effect.runFork)
  await turn()
  expect(done).toEqual(["given back"])
})
