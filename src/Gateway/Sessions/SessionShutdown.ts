/**
 * Stops all sessions when the gateway shuts down, and transfers those with secrets to other nodes.
 */
import { Duration, Effect } from "effect"
import * as Supervision from "../../Supervision.ts"
import type { Entity } from "./Entity.ts"
import type { SessionCache } from "./SessionCache.ts"
import type { Shared } from "./SessionCore.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { SessionTransfer } from "./SessionTransfer.ts"

/** How long the last records may take to be written. */
const saveTimeout = Duration.seconds(2)

/** The part of the time for stopping sessions that their transfer has at least. In general most of that time is left. */
const minTransferShare = 1 / 3

/**
 * Stops sessions within `settings.stopping`, and saves their records. The transfer has the rest of that time, or at least
 * a third of it.
 */
export const shutDown = (
  { monotonic, settings: { stopping } }: Pick<Shared, "monotonic" | "settings">,
  sessions: Pick<SessionCache, "all" | "peek">,
  records: Pick<SessionRecords, "flush">,
  transfer: Pick<SessionTransfer, "send">
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const startedAt = monotonic()
    const entities = [...sessions.all()].filter(({ lifecycle }) => lifecycle.needsShutdown)
    if (entities.length > 0) {
      yield* Effect.logInfo("Stopping sessions").pipe(Effect.annotateLogs({ sessions: entities.length }))
    }
    const end = ({ cleanup, lifecycle }: Entity) =>
      Effect.zipRight(Effect.ignore(lifecycle.stop("the gateway is shutting down")), cleanup.run(stopping))
    yield* Supervision.within(stopping, Effect.forEach(entities, end, { concurrency: "unbounded", discard: true }))
    yield* Supervision.within(saveTimeout, records.flush)
    // A session that could not be stopped is recovered by the node that takes it over.
    const left = Duration.toMillis(stopping) - (monotonic() - startedAt)
    const timeout = Math.max(left, Duration.toMillis(stopping) * minTransferShare)
    yield* transfer.send(session => sessions.peek(session)?.isQuiescent !== false, timeout)
  })
