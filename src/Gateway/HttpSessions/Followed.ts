/**
 * The sessions that clients follow by one request after the other. A deletion between two requests of a client is
 * remembered for a while, so that its next one is answered with the end of the stream, and not as one for an unknown
 * session.
 */
import { Effect, Exit, Runtime, Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { Clients } from "../Clients.ts"
import type { Caller, Subscriber } from "../Sessions.ts"
import type { Position } from "./DurableStream.ts"

/** How long a session is followed after the last request for its events, in milliseconds. */
const lingerMillis = 30_000

/** Maximum number of sessions that are followed for no request. Above it the oldest is forgotten. */
const maxLingering = 10_000

/** A session that is followed. */
class Entry {
  readers = 0
  expiresAt = Number.POSITIVE_INFINITY

  /** @param epoch that of its history */
  constructor(
    readonly epoch: string,
    readonly scope: Scope.CloseableScope
  ) {}
}

/** The sessions that clients follow. */
export interface Followed {
  /**
   * Follows a session until the scope closes, and for a while after that. It does not wait. The caller has subscribed to
   * the session, with this epoch.
   */
  readonly enter: (caller: Caller, sessionId: string, epoch: string) => Effect.Effect<void, never, Scope.Scope>
  /** Whether a session is followed whose history has a position. If it cannot be found now, it was deleted. */
  readonly has: (caller: Caller, sessionId: string, position: Position) => boolean
}

/** Follows sessions until the scope closes. */
export const make: Effect.Effect<Followed, never, Clients | Scope.Scope> = Effect.gen(function* () {
  const { sessions } = yield* Clients
  const clock = yield* Effect.clock
  const runFork = Runtime.runFork(yield* Effect.runtime<never>())
  const scope = yield* Effect.scope
  /** Those without a request last are the newest. */
  const entries = new Map<string, Entry>()
  const occupancy = new Supervision.Occupancy()
  let lingering = 0
  const now = () => Monotonic.unsafeMillis(clock)
  const keyOf = ({ tenant }: Caller, sessionId: string) => `${tenant}/${sessionId}`

  const forget = (key: string, entry: Entry): void => {
    if (entries.get(key) !== entry) return
    entries.delete(key)
    if (entry.readers === 0) lingering--
    occupancy.set(entries.size > 0)
    runFork(Scope.close(entry.scope, Exit.void))
  }

  const subscribe = (caller: Caller, sessionId: string, key: string, entry: Entry): Effect.Effect<void> => {
    const subscriber: Subscriber = {
      onFrames: () => {},
      // What is known of it is for the requests that follow.
      onDeleted: () => {},
      onLost: () => forget(key, entry)
    }
    return sessions.subscribe(caller, sessionId, subscriber).pipe(
      Scope.extend(entry.scope),
      Effect.match({
        onFailure: error => {
          // If it was deleted in the meantime, that is what is to be known.
          if (error._tag !== "SessionNotFound") forget(key, entry)
        },
        onSuccess: ({ epoch }) => {
          if (epoch !== entry.epoch) forget(key, entry)
        }
      })
    )
  }

  const follow = (caller: Caller, sessionId: string, key: string, epoch: string): Entry => {
    const known = entries.get(key)
    if (known?.epoch === epoch) return known
    if (known !== undefined) forget(key, known)
    const entry = new Entry(epoch, Effect.runSync(Scope.make()))
    lingering++
    entries.set(key, entry)
    occupancy.set(true)
    runFork(Effect.forkIn(subscribe(caller, sessionId, key, entry), scope))
    return entry
  }

  const leave = (key: string, entry: Entry): void => {
    if (--entry.readers > 0 || entries.get(key) !== entry) return
    entry.expiresAt = now() + lingerMillis
    lingering++
    // It is the newest now.
    entries.delete(key)
    entries.set(key, entry)
    if (lingering <= maxLingering) return
    for (const [oldest, other] of entries) if (other.readers === 0) return forget(oldest, other)
  }

  const expire = Effect.sync(() => {
    const time = now()
    for (const [key, entry] of entries) if (entry.readers === 0 && time >= entry.expiresAt) forget(key, entry)
  })
  yield* Supervision.tickScoped("sessions that were followed", "1 second", occupancy, expire)
  yield* Effect.addFinalizer(() =>
    Effect.forEach([...entries.values()], entry => Scope.close(entry.scope, Exit.void), { discard: true })
  )

  return {
    enter: (caller, sessionId, epoch) => {
      const key = keyOf(caller, sessionId)
      return Effect.acquireRelease(
        Effect.sync(() => {
          const entry = follow(caller, sessionId, key, epoch)
          if (entry.readers++ === 0) lingering--
          return entry
        }),
        entry => Effect.sync(() => leave(key, entry))
      )
    },
    has: (caller, sessionId, { epoch }) => entries.get(keyOf(caller, sessionId))?.epoch === epoch
  }
})
