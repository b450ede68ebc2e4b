import { type Context, Effect, ExecutionStrategy, Exit, Scope } from "effect"
import type { SessionEvents } from "../../../Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { hasRoom } from "../Database/Files.ts"
import type { StoreRefused } from "../Database/Opening.ts"

type Service = Context.Tag.Service<SessionEvents>

/**
 * Opens the histories, or defers that where a full disk has no room to create or migrate their database: then every
 * call fails with `StoreUnavailable` until there is room, and the first one after that opens them.
 */
export const openOrDefer = (
  directory: string,
  open: Effect.Effect<Service, StoreRefused, Scope.Scope>
): Effect.Effect<Service, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    // An attempt that fails releases what it has acquired.
    const attempt = Effect.flatMap(Scope.fork(scope, ExecutionStrategy.sequential), own =>
      Effect.onError(Scope.extend(open, own), cause => Scope.close(own, Exit.failCause(cause)))
    )
    const first = yield* Effect.either(attempt)
    if (first._tag === "Right") return first.right
    if (hasRoom(directory)) return yield* first.left
    yield* Effect.annotateLogs(
      Effect.logWarning("session histories cannot be opened until there is room on the disk"),
      "reason",
      first.left.message
    )

    let opened: Service | undefined
    const one = yield* Effect.makeSemaphore(1)
    const service = Effect.suspend((): Effect.Effect<Service, StoreUnavailable> => {
      if (opened !== undefined) return Effect.succeed(opened)
      if (!hasRoom(directory)) return new StoreUnavailable({ reason: "the disk is full" })
      return Effect.matchEffect(Effect.uninterruptible(attempt), {
        onFailure: refused => new StoreUnavailable({ reason: refused.message }),
        onSuccess: made => {
          opened = made
          return Effect.succeed(made)
        }
      })
    }).pipe(one.withPermits(1))
    const through = <A, E>(use: (service: Service) => Effect.Effect<A, E>): Effect.Effect<A, E | StoreUnavailable> =>
      Effect.flatMap(service, use)
    return {
      open: (session, epoch) => through(events => events.open(session, epoch)),
      restart: (session, epoch) => through(events => events.restart(session, epoch)),
      configure: (session, configuration) => through(events => events.configure(session, configuration)),
      configuration: session => through(events => events.configuration(session)),
      summaries: sessions => through(events => events.summaries(sessions)),
      find: session => through(events => events.find(session)),
      append: append => through(events => events.append(append)),
      read: (session, after, limit) => through(events => events.read(session, after, limit)),
      receipt: (session, id) => through(events => events.receipt(session, id)),
      remove: session => through(events => events.remove(session)),
      unfinished: through(events => events.unfinished),
      trim: age => through(events => events.trim(age))
    }
  })
