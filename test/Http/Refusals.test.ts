/** Requests that the server refuses for their request line or their header fields, as bytes over TCP. */
import { connect } from "node:net"
import { expect, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Memory from "../../src/Storage/Memory.ts"
import { keys, stock, type Transport } from "../Harness.ts"
import { Site, site } from "../suites/Http/Fixture.ts"
import { quickEdge } from "./Edge/EdgeTransport.ts"

/** Sends bytes, and collects what comes until the server ends the connection. */
const exchange = (...lines: ReadonlyArray<string>) =>
  Effect.flatMap(Site, ({ port }) =>
    Effect.promise(
      () =>
        new Promise<string>(resolve => {
          let received = ""
          const socket = connect(port, "127.0.0.1", () => socket.write([...lines, "", ""].join("\r\n")))
          socket.on("data", chunk => {
            received += chunk.toString("latin1")
            // An answer on a connection that stays open.
            if (received.includes("}")) socket.end()
          })
          socket.on("error", () => {})
          socket.on("close", () => resolve(received))
        })
    )
  )

const head = [`Host: localhost`, `Authorization: Bearer ${keys.write}`]

const refusals = (transport: Transport) =>
  layer(Layer.scoped(Site, site(transport, Memory.layer)), { excludeTestServices: true })(transport.name, it => {
    it.effect("refuses other versions of HTTP", () =>
      Effect.gen(function* () {
        for (const version of ["2.0", "0.9"]) {
          const answer = yield* exchange(`GET /api/v1/kv/n/k HTTP/${version}`, ...head)
          expect(answer).toMatch(/^HTTP\/1\.1 505 /)
          expect(answer).toContain(`HTTP/${version} is not supported here`)
        }
      })
    )

    it.effect("refuses a write with two idempotency keys", () =>
      Effect.gen(function* () {
        const body = '{"value":1}'
        const answer = yield* exchange(
          "PUT /api/v1/kv/n/k HTTP/1.1",
          ...head,
          "Content-Type: application/json",
          `Content-Length: ${body.length}`,
          "Idempotency-Key: a",
          "idempotency-key: b",
          "Connection: close",
          "",
          body
        )
        expect(answer).toMatch(/^HTTP\/1\.1 400 /)
        expect(answer).toContain("The header Idempotency-Key appears twice")
      })
    )

    it.effect("answers a transfer coding that it does not know", () =>
      Effect.gen(function* () {
        const answer = yield* exchange(
          "PUT /api/v1/kv/n/k HTTP/1.1",
          ...head,
          "Content-Type: application/json",
          "Transfer-Encoding: gzip"
        )
        expect(answer).toMatch(/^HTTP\/1\.1 (?:400|501) /)
      })
    )
  })

refusals(quickEdge)
refusals(stock)
