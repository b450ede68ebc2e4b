import { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either } from "effect"
import type { RawJson } from "../../src/base/Json/JsonText.ts"
import { Limits } from "../../src/base/Limits.ts"
import * as Body from "../../src/Http/RequestBody.ts"
import { format } from "../../src/Kv/Body.ts"
import { collect } from "../Garbage.ts"
import { turn } from "./Server/Fixture.ts"

/** Bytes in use after garbage collection. */
const inUse = (): number => {
  collect()
  const { external, heapUsed } = process.memoryUsage()
  return heapUsed + external
}

const bodyFormat = Body.keptFormat(format(Effect.runSync(Limits)))

/** A request whose body the test provides, and its result. */
const request = () => {
  const source = new IncomingMessage(new Socket())
  let result: unknown
  Body.read(source, bodyFormat, json => {
    result = json
  })
  return { source, result: () => result as Either.Either<{ readonly value: RawJson }, { readonly error: string }> }
}

describe("a request body", () => {
  it("in pieces of one byte takes little more memory than its bytes", async () => {
    const { source, result } = request()
    const length = 300_000
    const before = inUse()
    source.push('{"value":"')
    for (let count = 0; count < length; count++) {
      source.push(Buffer.from("x"))
      if (count % 10_000 === 0) await turn()
    }
    await turn()
    expect(inUse() - before).toBeLessThan(20 * length)
    source.push('"}')
    source.push(null)
    while (result() === undefined) await turn()
    expect(Either.getOrThrow(result()).value.text).toHaveLength(length + 2)
  })

  it("is parsed in its turn if it is large and others are too", async () => {
    // The bytes of the test before this one no longer count.
    await turn()
    const bodies = Array.from({ length: 4 }, request)
    for (const { source } of bodies) {
      source.push(`{"value":"${"x".repeat(600_000)}"}`)
      source.complete = true
      source.push(null)
    }
    const parsed: Array<number> = []
    for (let turns = 0; turns < 10 && parsed.at(-1) !== bodies.length; turns++) {
      await turn()
      parsed.push(bodies.filter(({ result }) => result() !== undefined).length)
    }
    expect(parsed.at(-1)).toBe(bodies.length)
    // Two together are more than is parsed in one turn.
    for (const [index, count] of parsed.entries()) expect(count - (parsed[index - 1] ?? 0)).toBeLessThanOrEqual(1)
    for (const { result } of bodies) expect(Either.getOrThrow(result()).value.text).toHaveLength(600_002)
  })

  it("is released if its client disconnects before its turn", async () => {
    const bodies = Array.from({ length: 3 }, request)
    for (const { source } of bodies) {
      source.push(`{"value":"${"x".repeat(1_000_000)}"}`)
      source.complete = true
      source.push(null)
    }
    const [first, second, third] = bodies
    second!.source.socket.destroy()
    while (third!.result() === undefined) await turn()
    expect(Either.isRight(first!.result())).toBe(true)
    expect(Either.isLeft(second!.result())).toBe(true)
    expect(Either.isRight(third!.result())).toBe(true)
  })
})
