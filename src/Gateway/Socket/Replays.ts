import { Effect, type Scope } from "effect"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
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

/** A feed that could not be read rests for so long, twice as long each time in a row, in milliseconds. */
const rests = { first: 500, longest: 8000 }

/** A feed that cannot be read for so long, in milliseconds, is given up. */
const patience = 30_000

/** How often feeds that rest are looked at while there are any. */
const look = "500 millis"

/** A feed that could not be read, and rests before it is tried again. */
interface Resting {
  readonly one: Behind
  /** When it failed first, and when it is tried again, in monotonic milliseconds. */
  readonly since: number
  readonly until: number
  readonly rest: number
}

/** Lets sockets be read and written before the next one's turn. */
const turn = Effect.async<void>(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

/**
 * One that cannot be read rests aside and slows no other; it is given up at once where what is stored of its session is
 * damaged, and after a while where the store is away.
 */
export const make: Effect.Effect<Replays, never, Scope.Scope> = Effect.gen(function* () {
  const behind = new RoundRobin<Behind>()
  /** Feeds that wait for their turn, each once. */
  const known = new Set<Feed>()
  const resting = new Map<Feed, Resting>()
  const work = yield* Effect.makeLatch(false)
  const rest = yield* Effect.makeLatch(false)

  const add = (one: Behind): void => {
    if (known.has(one.feed)) return
    known.add(one.feed)
    behind.add(one.tenant, one)
  }

  const lay = (one: Behind, before: Resting | undefined) =>
    Effect.map(Monotonic.millis, now => {
      const since = before?.since ?? now
      const pause = before === undefined ? rests.first : Math.min(before.rest * 2, rests.longest)
      if (now - since >= patience) one.feed.fail()
      else {
        resting.set(one.feed, { one, since, until: now + pause, rest: pause })
        rest.unsafeOpen()
      }
    })

  const advance = (one: Behind) =>
    Effect.suspend(() => {
      const { feed, onLost } = one
      known.delete(feed)
      const before = resting.get(feed)
      resting.delete(feed)
      const { wanted, position } = feed
      if (wanted === undefined) return Effect.void
      if (!feed.hasRoom) return Effect.sync(() => feed.wait())
      return wanted.read(position, pageEvents).pipe(
        Effect.flatMap(({ frames, trimmedSeq }) =>
          feed.onPage(position, frames, trimmedSeq) ? Effect.void : Effect.sync(onLost)
        ),
        Effect.catchTags({
          SessionUnreadable: () => Effect.sync(() => feed.fail()),
          StoreUnavailable: () => lay(one, before)
        }),
        Effect.catchAllDefect(defect =>
          Effect.zipRight(
            Effect.logError("A client's events could not be read", defect),
            Effect.sync(() => feed.fail())
          )
        )
      )
    })

  const round = Effect.gen(function* () {
    yield* work.await
    yield* work.close
    // What comes meanwhile has its turn along with the others.
    for (let left = known.size; left > 0; left--) {
      const one = behind.next()
      if (one === undefined) break
      yield* advance(one)
      yield* turn
    }
    if (!behind.isEmpty) yield* work.open
  })

  /** Brings back those that have rested. What is known of them stays until they are read. */
  const watch = Effect.gen(function* () {
    yield* rest.await
    yield* Effect.sleep(look)
    const now = yield* Monotonic.millis
    for (const [feed, { one, until }] of resting) {
      if (feed.wanted === undefined) resting.delete(feed)
      else if (until <= now) add(one)
    }
    if (resting.size === 0) yield* rest.close
    if (!behind.isEmpty) yield* work.open
  })

  yield* Supervision.forkScoped("replay of session events", Effect.zipRight(work.open, Effect.forever(round)))
  yield* Supervision.forkScoped("replay of session events that could not be read", Effect.forever(watch))

  return {
    add: (tenant, feed, onLost) => {
      add({ tenant, feed, onLost })
      work.unsafeOpen()
    }
  }
})
