import { Effect, type Scope } from "effect"
import { RoundRobin } from "../RoundRobin.ts"
import type { Feed } from "./Feed.ts"

/**
 * What has to be read from the store for clients that missed it, by one fiber for all of them: a page for one feed of
 * each tenant in turns, so that a tenant with thousands of feeds holds up nobody but itself.
 */
export interface Replays {
  /** Has a feed of a tenant brought forward. */
  readonly add: (tenant: string, feed: Feed, onLost: () => void) => void
}

interface Behind {
  readonly tenant: string
  readonly feed: Feed
  readonly onLost: () => void
}

/** Events of one session that are read at once. */
const pageEvents = 256

/** Lets sockets be read and written before the next one's turn. */
const turn = Effect.async<void>(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

export const make: Effect.Effect<Replays, never, Scope.Scope> = Effect.gen(function* () {
  const behind = new RoundRobin<Behind>()
  /** Feeds that wait, each once. */
  const known = new Set<Feed>()
  const work = yield* Effect.makeLatch(false)

  const add = (one: Behind): void => {
    if (known.has(one.feed)) return
    known.add(one.feed)
    behind.add(one.tenant, one)
  }

  const advance = (one: Behind) =>
    Effect.suspend(() => {
      const { feed, onLost } = one
      known.delete(feed)
      const { wanted, position } = feed
      if (wanted === undefined) return Effect.void
      if (!feed.hasRoom) return Effect.sync(() => feed.wait())
      return Effect.map(wanted.read(position, pageEvents), ({ frames, trimmedSeq }) => {
        if (!feed.onPage(position, frames, trimmedSeq)) onLost()
      })
    }).pipe(
      Effect.catchAllCause(cause =>
        Effect.zipRight(
          cause._tag === "Fail" ? Effect.void : Effect.logError("A client's events could not be read", cause),
          Effect.as(
            Effect.sync(() => add(one)),
            "away" as const
          )
        )
      )
    )

  const round = Effect.gen(function* () {
    yield* work.await
    yield* work.close
    let isAway = false
    // What comes meanwhile has its turn along with the others; after a failure it waits as they do.
    for (let left = known.size; left > 0; left--) {
      const one = behind.next()
      if (one === undefined) break
      if ((yield* advance(one)) === "away") isAway = true
      yield* turn
    }
    if (isAway) yield* Effect.sleep("500 millis")
    if (!behind.isEmpty) yield* work.open
  })
  yield* Effect.forkScoped(Effect.interruptible(Effect.forever(round)))

  return {
    add: (tenant, feed, onLost) => {
      add({ tenant, feed, onLost })
      work.unsafeOpen()
    }
  }
})
