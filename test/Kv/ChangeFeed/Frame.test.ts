import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc } from "effect"
import { WebSocket, WebSocketServer } from "ws"
import { textFrame, textFrames } from "../../../src/Http/WebSocket.ts"
import { codePoint } from "../../CodePoint.ts"
import { test } from "../../Tests.ts"

/**
 * The messages that a client receives if frames are written under the WebSocket, between others that it writes itself.
 */
const received = (frames: ReadonlyArray<Buffer>): Effect.Effect<ReadonlyArray<string>> =>
  Effect.promise(async () => {
    const sockets = new WebSocketServer({ noServer: true, clientTracking: false, perMessageDeflate: false })
    const server = createServer().on("upgrade", (request, socket, head) =>
      sockets.handleUpgrade(request, socket, head, webSocket => {
        for (const frame of frames) {
          webSocket.ping("between")
          socket.write(frame)
        }
        webSocket.close(1000)
      })
    )
    await once(server.listen(0, "127.0.0.1"), "listening")
    const messages: Array<string> = []
    const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
    client.on("message", (data, isBinary) => messages.push(isBinary ? "binary" : String(data)))
    const [code] = await once(client, "close")
    expect(code).toBe(1000)
    server.close()
    return messages
  })

describe("Frame", () => {
  test.live("is decoded to its text, at any length", function* () {
    const lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 200_000]
    const texts = lengths.flatMap(length => ["x".repeat(length), `${"é".repeat(length >> 1)}${"y".repeat(length % 2)}`])
    expect(yield* received(texts.map(textFrame))).toEqual(texts)
    // Several in one write.
    expect(yield* received([textFrames(texts.map(text => Buffer.from(text)))])).toEqual(texts)
    expect(textFrames([])).toHaveLength(0)
  })

  it("has exactly the bytes of its head and its text", () => {
    fc.assert(
      fc.property(fc.string({ unit: codePoint, maxLength: 300 }), text => {
        const frame = textFrame(text)
        const bytes = Buffer.from(text)
        expect(frame[0]).toBe(0x81)
        expect(frame.subarray(frame.length - bytes.length).equals(bytes)).toBe(true)
        expect(frame.length - bytes.length).toBe(bytes.length < 126 ? 2 : 4)
      })
    )
  })
})
