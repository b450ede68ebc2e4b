/**
 * Whether the database may be used: only after it was checked, its schema was brought up to date and its clock was
 * read. A node that starts while the database is unavailable continues without it, and must not serve a database that
 * it would have refused.
 */
import { Cause, Deferred, Effect, Option, type Redacted, Schedule, type Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import { StoreUnavailable } from "../../Kv/Store.ts"
import type { AtNow, DatabaseClock } from "./Database/DatabaseClock.ts"
import { describe } from "./Database/DatabaseError.ts"
import type { TablesInUse } from "./Database/TableLocks.ts"
import * as Queries from "./Kv/Queries.ts"
import * as Opening from "./Opening.ts"

/** How long the start waits for the database. Then it continues, and so does the attempt to open the database. */
const startTimeout = "5 seconds"

/** The pause before another attempt to open the database, if it was unavailable or refused. */
const pauses = { unavailable: "500 millis", refused: "2 seconds" } as const

/** Whether the database can be used now. */
export interface Readiness {
  /** Returns the reason why nothing may be sent to the database now, if there is one. */
  readonly refusal: () => StoreUnavailable | undefined
  /**
   * Runs `use` with the time of the database. Until that is known it fails: other nodes must not see the clock of this
   * one.
   */
  readonly atNow: AtNow
}

type Failure = Cause.Cause<Opening.StoreRefused | StoreUnavailable | TablesInUse>

const refusalIn = (cause: Failure): Option.Option<Opening.StoreRefused> =>
  Option.filter(Cause.failureOption(cause), error => error._tag === "StoreRefused")

const reasonOf = (cause: Failure): string => {
  const failure = Cause.failureOption(cause)
  return Option.isSome(failure) ? failure.value.message : describe(Cause.squash(cause))
}

/**
 * Opens the database, now or as soon as it is available. It fails only if the first attempt finds a store to refuse.
 */
export const make = (
  url: Redacted.Redacted,
  clock: DatabaseClock
): Effect.Effect<Readiness, Opening.StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    let refusal: StoreUnavailable | undefined
    const refuse = (reason: string): void => {
      refusal = new StoreUnavailable({ reason: `the database is not open: ${reason}` })
    }
    refuse(`no answer within ${startTimeout}`)
    const outage = Supervision.outage("opening the database")
    let logged: string | undefined
    const failed = (cause: Failure): Effect.Effect<void> =>
      Effect.suspend(() => {
        const reason = reasonOf(cause)
        refuse(reason)
        if (Option.isNone(refusalIn(cause)))
          return outage.failed(Cause.map(cause, ({ message }) => ({ reason: message })))
        if (reason === logged) return Effect.void
        logged = reason
        // The service has started, so that only the log can report it.
        return Effect.logError(reason)
      })
    const attempt = (options: Pick<Opening.Options, "onInUse">) =>
      Opening.open(url, {
        ...options,
        onMigration: (from, to) => {
          refuse(`its schema is brought up to date, from version ${from} to ${to}`)
          // Steps may take minutes in a large store, and writers wait for them.
          return Effect.annotateLogs(Effect.logInfo("The schema of the database is brought up to date"), { from, to })
        },
        andThen: query => clock.measure(Effect.map(query(Queries.clockAndLogEnd.text), Queries.clockAndLogEnd.decode))
      }).pipe(
        Effect.zipRight(
          Effect.sync(() => {
            refusal = undefined
          })
        ),
        Effect.sandbox
      )

    const schedule = Schedule.identity<Failure>().pipe(
      Schedule.addDelay(cause => (Option.isSome(refusalIn(cause)) ? pauses.refused : pauses.unavailable))
    )
    const later = attempt({ onInUse: error => failed(Cause.fail(error)) }).pipe(
      Effect.tapError(failed),
      Effect.retry(schedule),
      Effect.zipRight(outage.over),
      Effect.delay(pauses.unavailable)
    )
    /** Ended by the first attempt, or by the timeout. After that a refusal no longer ends the start. */
    const start = yield* Deferred.make<void, Opening.StoreRefused>()
    const end = Deferred.succeed(start, undefined)
    const first = Effect.catchAll(attempt({}), cause =>
      Effect.flatMap(
        Option.match(refusalIn(cause), { onNone: () => Effect.succeed(false), onSome: it => Deferred.fail(start, it) }),
        isRefused => (isRefused ? Effect.void : failed(cause).pipe(Effect.zipRight(end), Effect.zipRight(later)))
      )
    )
    // Not interrupted at the timeout: in the server, an attempt would continue until the end of its statement, with the
    // locks of a migration, and the next one would do all of it again.
    yield* Effect.forkScoped(Effect.interruptible(Effect.zipRight(first, end)))
    yield* Effect.raceFirst(Deferred.await(start), Effect.delay(end, startTimeout))
    return {
      refusal: () => refusal,
      atNow: <A, E>(use: (now: number) => Effect.Effect<A, E>) =>
        Effect.suspend((): Effect.Effect<A, E | StoreUnavailable> => refusal ?? use(clock.now()))
    }
  })
