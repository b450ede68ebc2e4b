import { describe, expect, it } from "@effect/vitest"
import { TokenBucket } from "../../../src/Gateway/Clients/ClientSocket.ts"
import { SerialQueues } from "../../../src/Gateway/Socket/ClientConnection.ts"

describe("TokenBucket", () => {
  it("admits its capacity and what is refilled, and counts refusals until it is full again", () => {
    const bucket = new TokenBucket(3, 1, 0)
    expect([1, 2, 3].map(() => bucket.take(0).taken)).toEqual([true, true, true])
    expect(bucket.take(0)).toEqual({ taken: false, refusals: 1 })
    expect(bucket.take(500)).toEqual({ taken: false, refusals: 2 })
    expect(bucket.take(1000).taken).toBe(true)
    expect(bucket.take(1001)).toEqual({ taken: false, refusals: 3 })
    expect(bucket.take(10_000).taken).toBe(true)
    expect([1, 2].map(() => bucket.take(10_000).taken)).toEqual([true, true])
    expect(bucket.take(10_000)).toEqual({ taken: false, refusals: 1 })
  })
})

describe("SerialQueues", () => {
  const item = (
    log: Array<string>,
    name: string,
    ends: Map<string, (failure?: string) => void>,
    isDependent = true
  ) => ({
    isDependent,
    begin: (onEnd: (failure: string | undefined) => void) => {
      log.push(`begin ${name}`)
      ends.set(name, failure => onEnd(failure))
    },
    abandon: (failure: string) => log.push(`abandon ${name}: ${failure}`)
  })

  it("run one task at a time per key, and skip tasks that depend on a failed one", () => {
    const log: Array<string> = []
    const ends = new Map<string, (failure?: string) => void>()
    const queues = new SerialQueues<string>()
    for (const name of ["a", "b", "c", "d"]) queues.add("one", item(log, name, ends))
    queues.add("one", item(log, "free", ends, false))
    queues.add("two", item(log, "x", ends))
    expect(log).toEqual(["begin a", "begin x"])
    ends.get("a")!()
    expect(log.at(-1)).toBe("begin b")
    ends.get("b")!("no")
    expect(log.slice(-3)).toEqual(["abandon c: no", "abandon d: no", "begin free"])
    ends.get("free")!()
    queues.add("one", item(log, "e", ends))
    expect(log.at(-1)).toBe("begin e")
    queues.add("one", item(log, "f", ends))
    queues.abandon("one", "stopped")
    expect(log.at(-1)).toBe("abandon f: stopped")
    ends.get("e")!()
    ends.get("x")!()
    queues.add("one", item(log, "g", ends))
    expect(log.at(-1)).toBe("begin g")
  })
})
