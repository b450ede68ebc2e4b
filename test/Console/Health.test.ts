/** How the console asks for the health of the service, in virtual time. */
import { afterEach, assert, beforeEach, describe, it, vi } from "vitest"
import { type Clock, Lifetime } from "../../src/Client/Time.ts"
import type { Activity } from "../../src/Operations/Activity/Model.ts"
import { sourceOf, stubPage } from "./Page.ts"

interface Health {
  readonly checkHealth: () => void
  readonly isReachable: { readonly value: boolean | undefined }
  readonly isStoreReady: { readonly value: boolean | undefined }
  readonly watchHealth: (ended: AbortSignal) => Promise<void>
}

const setUp = async () => {
  const health: Health = await import(sourceOf("Service/Health.ts"))
  const { clock }: { readonly clock: Clock } = await import(sourceOf("Service/Pause.ts"))
  return { ...health, clock }
}

describe("The health in the console", () => {
  let isUp = true
  let ready = async () => Response.json({ ok: true })
  /** When the service was asked, in virtual milliseconds. */
  const asked: Array<number> = []
  let ended = new AbortController()

  beforeEach(() => {
    ended = new AbortController()
    isUp = true
    ready = async () => Response.json({ ok: true })
    asked.length = 0
    vi.useFakeTimers()
    stubPage(async path => {
      if (path === "/api/v1/ready") return ready()
      asked.push(Date.now())
      if (!isUp) throw new TypeError("Failed to fetch")
      return Response.json({ status: "ok" })
    })
  })

  afterEach(() => {
    ended.abort()
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  it("is checked at once after a lost connection, with backoff while it is unavailable, and clients reconnect when it recovers", async () => {
    const { clock, checkHealth, isReachable, watchHealth } = await setUp()
    const advance = async (ms: number): Promise<ReadonlyArray<number>> => {
      const before = asked.length
      await vi.advanceTimersByTimeAsync(ms)
      return asked.slice(before)
    }
    void watchHealth(ended.signal)
    await advance(1000)
    assert.strictEqual(asked.length, 1)
    assert.isTrue(isReachable.value)
    assert.strictEqual((await advance(9500)).length, 2)

    // Many connections that are lost at once are one reason to ask.
    isUp = false
    await advance(600)
    for (let i = 0; i < 100; i++) checkHealth()
    assert.strictEqual((await advance(0)).length, 1)
    assert.isFalse(isReachable.value)

    // Failed reconnects do not count.
    let tries = 0
    clock.after(30_000, () => tries++)
    const lifetime = new Lifetime(clock, undefined)
    lifetime.limit(60_000, "It takes too long")
    const times = [asked.at(-1)!]
    for (let second = 0; second < 20; second++) {
      checkHealth()
      times.push(...(await advance(1000)))
    }
    const distances = times.slice(1).map((time, index) => time - times[index]!)
    assert.isAtLeast(distances.length, 20_000 / 2000)
    assert.isAtMost(distances[0]!, 300)
    for (const [index, distance] of distances.entries()) {
      assert.isAtMost(distance, 2000)
      assert.isAtLeast(distance, Math.min(1000, 150 * 2 ** index))
    }
    assert.strictEqual(tries, 0)

    isUp = true
    await advance(2000)
    assert.isTrue(isReachable.value)
    assert.strictEqual(tries, 1)
    // A time limit stays what it is.
    assert.isFalse(lifetime.signal.aborted)
    await advance(60_000)
    assert.isTrue(lifetime.signal.aborted)
  })

  it("includes the store, which may be unavailable or not answer", async () => {
    const { isReachable, isStoreReady, watchHealth } = await setUp()
    void watchHealth(ended.signal)
    const states: Array<unknown> = []
    for (const answer of [
      async () => Response.json({ ok: true }),
      async () => Response.json({ ok: false }),
      () => Promise.reject(new TypeError("Failed to fetch")),
      async () => Response.json({ ok: true })
    ]) {
      ready = answer
      await vi.advanceTimersByTimeAsync(5000)
      states.push([isReachable.value, isStoreReady.value])
    }
    assert.deepStrictEqual(states, [
      [true, true],
      [true, false],
      [true, false],
      [true, true]
    ])
  })

  it("is asked about twice in a second at most, however often connections are lost while it answers", async () => {
    const { checkHealth, watchHealth } = await setUp()
    void watchHealth(ended.signal)
    for (let i = 0; i < 1000; i++) {
      checkHealth()
      await vi.advanceTimersByTimeAsync(10)
    }
    assert.isAtMost(asked.length, 21)
  })
})

interface Source<A> {
  readonly value: { readonly value: A; readonly at: number; readonly isOld: boolean } | undefined
}

interface Watched {
  readonly activity: Source<Activity>
  readonly holdings: Source<{ readonly entries: number }>
  readonly activityProblem: { readonly value: string }
  readonly watchActivity: (ended: AbortSignal) => Promise<void>
}

describe("the activity in the console", () => {
  const ended = new AbortController()
  let answer: () => Response

  beforeEach(() => {
    vi.useFakeTimers({ now: 0 })
    stubPage(async () => answer())
  })

  afterEach(() => {
    ended.abort()
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  it("has the time of each source that does not answer any longer", async () => {
    const found = (entries: number | undefined) => () =>
      Response.json({ at: 1, nodes: [], unlisted: 0, holdings: entries === undefined ? null : { entries } })
    answer = found(1)
    const { activity, activityProblem, holdings, watchActivity }: Watched = await import(
      sourceOf("Overview/Activity.ts")
    )
    const { user }: { user: { value: unknown } } = await import(sourceOf("Service/Connection.ts"))
    user.value = { credential: "key", store: "write" }
    void watchActivity(ended.signal)
    await vi.advanceTimersByTimeAsync(100)
    const states: Array<unknown> = []
    for (const next of [
      found(1),
      found(undefined),
      () => Response.json({}, { status: 500 }),
      () => {
        throw new TypeError("Failed to fetch")
      },
      found(2)
    ]) {
      answer = next
      await vi.advanceTimersByTimeAsync(5000)
      const [held, done] = [holdings.value, activity.value]
      states.push([held?.value.entries, held?.at, held?.isOld, done?.at, done?.isOld, activityProblem.value])
    }
    assert.deepStrictEqual(states, [
      [1, 5000, false, 5000, false, ""],
      [1, 5000, true, 10_000, false, ""],
      [1, 5000, true, 10_000, true, "The service answers 500 without its figures"],
      [1, 5000, true, 10_000, true, "The figures of the service do not arrive"],
      [2, 25_000, false, 25_000, false, ""]
    ])
  })
})
