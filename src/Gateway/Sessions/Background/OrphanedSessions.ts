/**
 * The removal of orphaned sessions: those of which a history or a launch configuration is stored, but no record. A gateway
 * that is killed between its writes to the session database and to the key-value store leaves them.
 */
import { type Context, Effect, Either, Option, type Scope } from "effect"
import * as HousekeepingMetrics from "../../../base/Observability/HousekeepingMetrics.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import type { SessionEvents } from "../../SessionEvents.ts"
import { longestCreation, type SessionRecords } from "../Session/SessionRecords.ts"
import type { SessionCache } from "../SessionCache.ts"

/**
 * The pause between two passes. A session is removed when two passes in a row have found no record of it, so that the
 * pause has to be longer than a creation.
 */
const interval = longestCreation * 2

/** Sessions of one read, and the pause between two reads of a pass. */
const pageSize = 200
const pagePause = "1 second"

/** What is stored of sessions, and the sessions in memory. */
interface Options {
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "find" | "remove" | "sessions">
  readonly records: Pick<SessionRecords, "missing">
  readonly cache: Pick<SessionCache, "peek">
}

/** Removes an orphan, unless it is in use. Returns whether it was removed. */
const remove = ({ cache, events }: Options, session: string) =>
  Effect.gen(function* () {
    // A deleted session stays in memory until its instances are stopped. After a crash its recovery stops them.
    if (cache.peek(session) !== undefined) return false
    const history = yield* events.find(session)
    if (Option.exists(history, ({ recoveryState }) => recoveryState !== null)) return false
    yield* events.remove(session)
    return true
  }).pipe(
    Effect.catchTags({
      SessionElsewhere: () => Effect.succeed(false),
      StoreBusy: () => new StoreUnavailable({ reason: "too many writes wait" })
    })
  )

/**
 * Looks for orphans, and removes those that are also in `before`. Returns what it has found, and its last failure to remove
 * an orphan.
 */
const pass = (options: Options, before: ReadonlySet<string>) =>
  Effect.gen(function* () {
    const orphans = new Set<string>()
    let failure: StoreUnavailable | undefined
    let removed = 0
    for (let after = ""; ; yield* Effect.sleep(pagePause)) {
      const page = yield* options.events.sessions(after, pageSize)
      for (const session of yield* options.records.missing(page)) {
        orphans.add(session)
        if (!before.has(session)) continue
        const outcome = yield* Effect.either(remove(options, session))
        // One damaged session prevents no other removal.
        if (Either.isLeft(outcome)) failure = outcome.left
        else if (outcome.right) removed++
      }
      if (page.length < pageSize) break
      after = page.at(-1)!
    }
    if (removed > 0) {
      yield* Effect.annotateLogs(Effect.logInfo("Removed what was stored of sessions without an entry"), {
        sessions: removed
      })
    }
    return { orphans, failure }
  })

/** Removes orphans, slowly and until the scope closes. */
export const start = (options: Options): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const counted = yield* HousekeepingMetrics.make("orphaned_sessions")
    let known: ReadonlySet<string> = new Set()
    const work = Effect.flatMap(
      Effect.suspend(() => pass(options, known)),
      ({ failure, orphans }) => {
        known = orphans
        return failure ?? Effect.void
      }
    )
    yield* Supervision.repeatScoped("removal of orphaned sessions", interval, counted(work))
  })
