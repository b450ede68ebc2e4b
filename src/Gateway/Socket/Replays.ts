import { Effect, type Scope } from "effect"
import type { Feed } from "./Feed.ts"

/** What has to be read from the store for clients that missed it, by one fiber for all of them in turns. */
export interface Replays {
  /** Has a feed brought forward. */
  readonly add: (feed: Feed, onLost: () => void) => void
}

/** Events of one session that are read at once. */
const pageEvents = 256

/** Lets sockets be read and written before the next one's turn. */
const turn = Effect.async<void>(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

export const make: Effect.Effect<Replays, never, Scope.Scope> = Effect.gen(function* () {
  const behind = new Map<Feed, () => void>()
  const work = yield* Effect.makeLatch(false)

  const advance = (feed: Feed, onLost: () => void) =>
    Effect.suspend(() => {
      behind.delete(feed)
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
            Effect.sync(() => behind.set(feed, onLost)),
            "away" as const
          )
        )
      )
    )

  const round = Effect.gen(function* () {
    yield* work.await
    yield* work.close
    let isAway = false
    for (const [feed, onLost] of [...behind]) {
      if ((yield* advance(feed, onLost)) === "away") isAway = true
      yield* turn
    }
    if (isAway) yield* Effect.sleep("500 millis")
    if (behind.size > 0) yield* work.open
  })
  yield* Effect.forkScoped(Effect.interruptible(Effect.forever(round)))

  return {
    add: (feed, onLost) => {
      behind.set(feed, onLost)
      work.unsafeOpen()
    }
  }
})
