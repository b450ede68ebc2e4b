/** What the console keeps of the activity of the service while parts of it do not answer, in virtual time. */
import { afterEach, assert, beforeEach, describe, it, vi } from "vitest"
import type { Activity } from "../../src/Operations/Activity/Model.ts"
import { sourceOf, stubPage } from "./Page.ts"

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
