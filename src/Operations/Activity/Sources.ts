/** What the gateway adds to the activity of the service. */
import { Context, Effect } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import type { AgentAddress, NodeActivity } from "./Model.ts"
import type { Wanted } from "./Recorder.ts"

/** The number of sessions of a tenant that do the same. */
export interface SessionsOfTenant {
  readonly tenant: string
  readonly running: boolean
  readonly waiting: boolean
  readonly failed: boolean
  readonly count: number
}

/** The nodes that share the database. */
export interface Nodes {
  /** The id of this one; `""` if it is alone. */
  readonly self: string
  /** The number of all nodes, this one included. */
  readonly count: number
  /** What the others have recorded, each within two seconds; `most` is for each node. */
  readonly others: ReadonlyArray<(wanted: Wanted) => Effect.Effect<NodeActivity>>
}

/** The sources of the gateway; none without one. */
export class Sources extends Context.Reference<Sources>()("causeway/ActivitySources", {
  defaultValue: (): SourcesShape => ({
    sessions: undefined,
    nodes: Effect.succeed({ self: "", count: 1, others: [] }),
    agents: []
  })
}) {}

export interface SourcesShape {
  /** Counts at most `limit` sessions, of one tenant or of all. */
  readonly sessions:
    | ((limit: number, tenant?: string) => Effect.Effect<ReadonlyArray<SessionsOfTenant>, StoreUnavailable>)
    | undefined
  readonly nodes: Effect.Effect<Nodes>
  readonly agents: ReadonlyArray<AgentAddress>
}
