/** Group commit of the histories of sessions: the writes, their weight, and the members of the port that write. */
import { Clock, type Context, Effect, type Scope } from "effect"
import * as Direct from "../../base/Direct.ts"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Supervision from "../../base/Supervision.ts"
import type {
  Append,
  Checkpoint,
  LaunchConfiguration,
  Opened,
  OutOfStep,
  SessionElsewhere,
  SessionEvents
} from "../../Gateway/SessionEvents.ts"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import * as GroupCommit from "./GroupCommit.ts"

/** A write that opens a history. */
interface Begin {
  readonly op: "open" | "renewEpoch"
  readonly session: string
  readonly epoch: string
  /** When the session counts as active if it has no history, in epoch milliseconds. */
  readonly at: number
}

/** A write to the stored data of a session. */
export type EventWrite =
  | Begin
  | ({ readonly op: "append" } & Append)
  | { readonly op: "configure"; readonly session: string; readonly configuration: LaunchConfiguration }
  | { readonly op: "remove"; readonly session: string }

/** A write that needs no ownership of the session. */
export interface CheckpointWrite {
  readonly op: "saveCheckpoint"
  readonly session: string
  readonly checkpoint: Checkpoint
}

/** A write with which a node gives up the ownership of a session, if nodes share a database. */
interface Release {
  readonly op: "release"
}

const weigh = (write: EventWrite | CheckpointWrite | Release): GroupCommit.Weight => {
  switch (write.op) {
    case "append":
      return { operations: write.texts.length + 1, bytes: write.texts.reduce((sum, text) => sum + text.length, 64) }
    case "configure": {
      const { deployment, environment } = write.configuration
      return { operations: 1, bytes: 64 + (deployment?.length ?? 0) + (environment?.length ?? 0) }
    }
    case "saveCheckpoint":
      return { operations: 1, bytes: 64 + write.checkpoint.text.length }
    default:
      return { operations: 1, bytes: 64 }
  }
}

const metrics = GroupCommit.metrics("the histories of sessions", {
  commits: "session_commits_total",
  writes: "session_commit_writes",
  duration: "session_commit_duration_ms"
})

/** A committer of writes. It registers its metrics with the value 0. Writes that open a history return it. */
export const make = <W extends EventWrite | CheckpointWrite | Release, E>(
  options: Pick<GroupCommit.Options<W, Opened | undefined, E>, "commit" | "prepare" | "spacingMillis">
): Effect.Effect<GroupCommit.GroupCommit<W, Opened | undefined, E>, never, Scope.Scope> =>
  Effect.flatMap(MetricTags.current, tags =>
    GroupCommit.make<W, Opened | undefined, E>({
      ...options,
      commit: (group, now, isGivenUp) =>
        options.commit(group, now, isGivenUp).pipe(
          Effect.tapDefect(cause => Effect.logError("A commit of session histories failed with a defect", cause)),
          // The outcome is unknown. Sessions treat an unavailable store in the same way.
          Effect.catchAllDefect(defect => new StoreUnavailable({ reason: String(defect) }))
        ),
      weigh,
      observe: metrics(tags),
      outage: Supervision.outage("writing of session histories")
    })
  )

type Members = Pick<
  Context.Tag.Service<SessionEvents>,
  "create" | "open" | "append" | "renewEpoch" | "configure" | "remove"
>

const missing = new StoreUnavailable({ reason: "the database returned no history" })

/** The members of the port that write. */
export const members = (
  submit: (
    write: EventWrite
  ) => Effect.Effect<Opened | undefined, OutOfStep | SessionElsewhere | StoreBusy | StoreUnavailable>
): Members => {
  const replace = (write: Exclude<EventWrite, { op: "append" }>) =>
    // Only an append can be out of step.
    Effect.catchTag(submit(write), "OutOfStep", Effect.die)
  const begin = (op: Begin["op"]) => (session: string, epoch: string, activeAt?: number) =>
    Clock.currentTimeMillis.pipe(
      Effect.flatMap(now => replace({ op, session, epoch, at: activeAt ?? Math.trunc(now) })),
      Effect.flatMap(history => (history === undefined ? missing : Effect.succeed(history)))
    )
  return {
    // For a database that no nodes share.
    create: (...history) => Effect.asVoid(Effect.catchTag(begin("open")(...history), "SessionElsewhere", Effect.die)),
    open: (session, epoch) => begin("open")(session, epoch),
    append: append => Direct.map(submit({ op: "append", ...append }), () => undefined),
    renewEpoch: (session, epoch) => begin("renewEpoch")(session, epoch),
    configure: (session, configuration) => Effect.asVoid(replace({ op: "configure", session, configuration })),
    remove: session => Effect.asVoid(replace({ op: "remove", session }))
  }
}
