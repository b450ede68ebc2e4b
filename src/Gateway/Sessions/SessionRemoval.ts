/**
 * Deleting sessions: the instance is stopped, the record is removed, and what is stored of the session follows once
 * nothing of it is left to stop.
 */
import { type Context, Effect, Fiber, type Scope } from "effect"
import type { SessionEvents } from "../SessionEvents.ts"
import type { Caller, Sessions } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import type { SecretPool } from "./SecretPool.ts"
import type { SessionCache } from "./SessionCache.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { Quota } from "./TenantSessions.ts"

/** Where the parts of a session are removed. */
export interface Options {
  readonly cache: Pick<SessionCache, "get" | "evict">
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "isShared">
  readonly quota: Quota
  readonly records: Pick<SessionRecords, "remove">
  readonly secrets: SecretPool
  /** In which deletions run. */
  readonly scope: Scope.Scope
}

/** `Sessions.remove`. */
export const make = ({
  cache,
  events,
  quota,
  records,
  scope,
  secrets
}: Options): Context.Tag.Service<Sessions>["remove"] => {
  const removal = ({ tenant, actor }: Caller, entity: Entity) =>
    Effect.gen(function* () {
      yield* entity.lifecycle.stop("the session was deleted")
      // A creation of unknown outcome can be repeated only with what the record has.
      const { agentType } = entity.record
      yield* entity.setState(state =>
        state.pendingStops.some(({ instanceId }) => instanceId === null) ? { ...state, request: { agentType } } : state
      )
      yield* quota.deleting(tenant, records.remove(entity, actor))
      entity.completeDeletion()
      secrets.forget(entity.key)
      // A session with pending stops is kept until they are done.
      const { instance, pendingStops } = entity.state
      if (instance === null && pendingStops.length === 0) {
        yield* entity.configuration.remove()
        cache.evict(entity)
        // Any change of what is stored notifies the other nodes.
      } else if (events.isShared) yield* Effect.ignore(entity.confirm)
    }).pipe(
      Effect.onError(() => Effect.sync(() => entity.abortDeletion())),
      Effect.uninterruptible
    )

  // It runs in its own fiber: a caller that cannot be interrupted would delay the gateway's shutdown.
  return (caller, sessionId) =>
    Effect.flatMap(cache.get(caller.tenant, sessionId), entity => {
      // Before the fiber runs, so that no activation starts in the meantime.
      entity.beginDeletion()
      return Effect.flatMap(Effect.forkIn(entity.use(removal(caller, entity)), scope), Fiber.join)
    })
}
