import { assert, describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, FastCheck, Fiber, TestClock } from "effect"
import { RoundRobin } from "../../src/Gateway/Clients/Replays.ts"
import { type Claim, FairPool, type Options } from "../../src/Gateway/FairPool.ts"
import { times } from "../Scale.ts"
import { test } from "../Tests.ts"

/** A pool whose users note their claims, and give the newest back when they are asked to. */
const pooled = (options: Omit<Options, "name" | "reclaimFirst">, canReclaim: boolean) => {
  const claims: Array<Claim> = []
  const order: Array<Claim> = []
  const refused: Array<Claim> = []
  const pool: FairPool = new FairPool({ name: "things", ...options, reclaimFirst: "newest" })
  const offer = (claim: Claim): void => {
    if (canReclaim) claim.offer({ onReclaim: () => assert.isFalse(claim.isHeld) })
  }
  const request = (holder: string, size: number): Claim => {
    const claim: Claim = pool.request(holder, size, isGranted => {
      if (isGranted) offer(claim)
      const decided = isGranted ? order : refused
      decided.push(claim)
    })
    claims.push(claim)
    if (claim.isHeld) {
      offer(claim)
      order.push(claim)
    }
    return claim
  }
  const take = (holder: string, size: number): Claim | undefined => {
    const claim = pool.take(holder, size)
    if (claim !== undefined) {
      offer(claim)
      claims.push(claim)
    }
    return claim
  }
  return { claims, order, pool, refused, request, take }
}

const tenant = FastCheck.constantFrom("a", "b", "c", "d")

const command = FastCheck.oneof(
  FastCheck.record({ do: FastCheck.constant("request" as const), tenant, size: FastCheck.integer({ min: 0, max: 9 }) }),
  FastCheck.record({ do: FastCheck.constant("take" as const), tenant, size: FastCheck.integer({ min: 0, max: 9 }) }),
  FastCheck.record({ do: FastCheck.constant("release" as const), at: FastCheck.nat(50) }),
  FastCheck.record({
    do: FastCheck.constant("resize" as const),
    at: FastCheck.nat(50),
    size: FastCheck.integer({ min: 0, max: 9 })
  })
)

describe("FairPool", () => {
  it("never exceeds its capacity or a tenant's limit, and loses no permits", () => {
    FastCheck.assert(
      FastCheck.property(
        FastCheck.array(command, { maxLength: 60 }),
        FastCheck.integer({ min: 1, max: 20 }),
        FastCheck.integer({ min: 1, max: 20 }),
        FastCheck.boolean(),
        (commands, capacity, maxOfOne, canReclaim) => {
          const { claims, pool, request, take } = pooled({ capacity, maxOfOne, maxWaiting: 8 }, canReclaim)
          for (const command of commands) {
            if (command.do === "request") request(command.tenant, command.size)
            else if (command.do === "take") take(command.tenant, command.size)
            else {
              const claim = claims[command.at % Math.max(1, claims.length)]
              if (command.do === "release") claim?.release()
              else claim?.resize(command.size)
            }
            const held = claims.filter(({ isHeld }) => isHeld)
            expect(pool.used).toBe(held.reduce((sum, { size }) => sum + size, 0))
            expect(pool.used).toBeLessThanOrEqual(capacity)
            expect(pool.waiting).toBeLessThanOrEqual(8)
            for (const holder of ["a", "b", "c", "d"]) {
              const own = held.filter(claim => claim.holder === holder).reduce((sum, { size }) => sum + size, 0)
              expect(pool.heldBy(holder)).toBe(own)
              expect(own).toBeLessThanOrEqual(maxOfOne)
            }
          }
          for (const claim of claims) claim.release()
          expect([pool.used, pool.waiting, pool.largestFirst()]).toEqual([0, 0, []])
        }
      ),
      { numRuns: times(500) }
    )
  })

  it("serves each tenant in the order of its requests", () => {
    FastCheck.assert(
      FastCheck.property(
        FastCheck.array(FastCheck.tuple(tenant, FastCheck.integer({ min: 1, max: 5 })), { maxLength: 40 }),
        FastCheck.integer({ min: 5, max: 12 }),
        (requests, capacity) => {
          const { claims, order, request } = pooled({ capacity }, false)
          for (const [tenant, size] of requests) request(tenant, size)
          // Everything is given back in the order in which it was given.
          for (let at = 0; at < order.length; at++) order[at]!.release()
          expect(order).toHaveLength(requests.length)
          for (const holder of ["a", "b", "c", "d"]) {
            const own = (claim: Claim) => claim.holder === holder
            expect(order.filter(own)).toEqual(claims.filter(own))
          }
        }
      ),
      { numRuns: times(200) }
    )
  })

  it("grants a tenant within its fair share at the cost of the largest holder", () => {
    FastCheck.assert(
      FastCheck.property(
        FastCheck.array(FastCheck.tuple(tenant, FastCheck.integer({ min: 1, max: 6 })), { maxLength: 40 }),
        FastCheck.integer({ min: 8, max: 30 }),
        FastCheck.integer({ min: 1, max: 6 }),
        (takes, capacity, size) => {
          const { pool, take } = pooled({ capacity }, true)
          for (const [tenant, size] of takes) take(tenant, size)
          const before = pool.heldBy("a")
          const holders = new Set([...pool.largestFirst(), "a"]).size
          FastCheck.pre(before + size <= capacity / holders)
          const small = pool.largestFirst().filter(holder => holder !== "a" && pool.heldBy(holder) <= before + size)
          const kept = small.map(holder => pool.heldBy(holder))
          expect(take("a", size)?.isHeld).toBe(true)
          expect(pool.heldBy("a")).toBe(before + size)
          // Nothing was reclaimed from holders that do not have more.
          expect(small.map(holder => pool.heldBy(holder))).toEqual(kept)
        }
      ),
      { numRuns: times(500) }
    )
  })

  for (const reclaimFirst of ["oldest", "newest"] as const) {
    it(`reclaims what is offered, the ${reclaimFirst} first, and nothing else`, () => {
      const pool = new FairPool({ name: "things", capacity: 6, reclaimFirst })
      const reclaimed: Array<number> = []
      let pinned = -1
      const claims = [0, 1, 2, 3, 4, 5].map(index => {
        const claim = pool.take("a", 1)!
        claim.offer({ isReclaimable: () => index !== pinned, onReclaim: () => reclaimed.push(index) })
        return claim
      })
      // It is the newest from now on.
      claims[2]!.offer({ isReclaimable: () => pinned !== 2, onReclaim: () => reclaimed.push(2) })
      claims[0]!.withdraw()
      claims[1]!.release()
      pinned = reclaimFirst === "oldest" ? 3 : 2
      for (let index = 0; index < 4; index++) pool.take("b", 1)
      expect(reclaimed).toEqual(reclaimFirst === "oldest" ? [4, 5] : [5, 4])
      expect(claims.map(({ isHeld }) => isHeld)).toEqual([true, false, true, true, false, false])
      expect(pool.used).toBe(6)
    })
  }

  it("reclaims nothing from holders with no more than the requester, nor for a tenant that caused the shortage itself", () => {
    const { pool, take } = pooled({ capacity: 4 }, true)
    for (const tenant of ["a", "a", "b", "b"]) expect(take(tenant, 1)?.isHeld).toBe(true)
    expect(take("a", 1)).toBeUndefined()
    expect(take("c", 1)?.isHeld).toBe(true)
    expect(take("c", 2)).toBeUndefined()
    // It would have as much as the one that lost it.
    expect(take("a", 1)).toBeUndefined()
    expect([pool.heldBy("a"), pool.heldBy("b"), pool.heldBy("c")]).toEqual([1, 2, 1])
  })

  it("grants released permits to the tenant with the least, and to equal ones in turn", () => {
    const { order, request } = pooled({ capacity: 2 }, false)
    const [first, second] = [request("a", 1), request("a", 1)]
    for (const tenant of ["a", "a", "b", "b", "c", "c"]) request(tenant, 1)
    first.release()
    second.release()
    expect(order.slice(2).map(({ holder }) => holder)).toEqual(["b", "c"])
    for (let at = 2; at < order.length; at++) order[at]!.release()
    expect(order.slice(4).map(({ holder }) => holder)).toEqual(["a", "b", "c", "a"])
  })

  it("refuses the newest request of the longest queue if too many wait", () => {
    const { order, refused, request } = pooled({ capacity: 1, maxWaiting: 3 }, false)
    const first = request("a", 1)
    const [, , last] = [request("a", 1), request("a", 1), request("a", 1)]
    const other = request("b", 1)
    expect(refused).toEqual([last])
    first.release()
    expect(order.at(-1)).toBe(other)
  })

  it("grants nothing to a claim that is released by what it reclaims", () => {
    const pool = new FairPool({ name: "things", capacity: 4 })
    const held = pool.take("b", 1)!
    pool.take("a", 3)!.offer({ onReclaim: () => held.release() })
    expect([held.resize(2), pool.used]).toEqual([false, 0])
    const all = pool.take("a", 4)!
    const [first, second] = [pool.request("b", 1, () => {}), pool.request("b", 1, () => {})]
    all.offer({ onReclaim: () => first.release() })
    pool.serve()
    expect([first.isHeld, second.isHeld, pool.used]).toEqual([false, true, 1])
  })

  it("grants waiting requests what was reclaimed in excess", () => {
    const pool = new FairPool({ name: "things", capacity: 4 })
    const all = pool.take("a", 4)!
    const waiting = pool.request("b", 1, () => {})
    all.offer({ onReclaim: () => {} })
    pool.take("c", 1)
    expect(waiting.isHeld).toBe(true)
  })

  test.effect("loses no permits to interruptions", function* () {
    const { pool } = pooled({ capacity: 3 }, false)
    for (let round = 0; round < times(30); round++) {
      const gate = yield* Deferred.make<void>()
      const fibers = yield* Effect.forEach(Array.from({ length: 12 }), (_, index) =>
        Effect.fork(pool.use("abc"[index % 3]!, 1, () => Effect.zipRight(Effect.yieldNow(), Deferred.await(gate))))
      )
      yield* Effect.repeatN(Effect.yieldNow(), round % 7)
      // Those that are granted in the same step as they are interrupted are what could get lost.
      const victims = fibers.filter((_, index) => (index + round) % 2 === 0)
      yield* Effect.fork(Fiber.interruptAll(victims))
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.forEach(fibers, Fiber.await)
      assert.deepStrictEqual([pool.used, pool.waiting], [0, 0])
    }
  })

  test.effect("respects the time limit of each waiter", function* () {
    const { pool } = pooled({ capacity: 1 }, false)
    const holding = yield* Effect.fork(pool.use("a", 1, () => Effect.never))
    yield* Effect.yieldNow()
    const waiting = yield* Effect.fork(Effect.flip(pool.use("b", 1, () => Effect.void, "5 seconds")))
    yield* TestClock.adjust("5 seconds")
    assert.strictEqual((yield* Fiber.join(waiting))._tag, "SessionsBusy")
    assert.strictEqual((yield* Effect.flip(pool.use("b", 2, () => Effect.void)))._tag, "SessionsBusy")
    yield* Fiber.interrupt(holding)
    assert.deepStrictEqual([pool.used, pool.waiting], [0, 0])
  })
})

describe("RoundRobin", () => {
  it("serves tenants in turn, each in order, and each item once", () => {
    const turns = new RoundRobin<string>()
    for (const item of ["a1", "a2", "a3", "b1", "a1", "c1", "b2"]) turns.add(item[0]!, item)
    const served: Array<string | undefined> = []
    while (!turns.isEmpty) served.push(turns.next())
    expect(served).toEqual(["a1", "b1", "c1", "a2", "b2", "a3"])
    expect(turns.next()).toBeUndefined()
  })
})
