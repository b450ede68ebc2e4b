/** What the service records of its activity, as plain types and values, which the console imports too. */

/** The figures of a sample. Rates are per second, times in milliseconds, sizes in bytes. */
export const figureNames = [
  ...(["succeeded", "refused", "failed", "p50", "p95", "p99"] as const),
  ...(["reads", "writes", "commits", "commitP99"] as const),
  ...(["followers", "lag", "connections", "eventLoop", "resident", "heap"] as const)
] as const

export type FigureName = (typeof figureNames)[number]

/** A value for each figure. */
export type ByFigure<A> = Readonly<Record<FigureName, A>>

export const byFigure = <A>(valueOf: (name: FigureName, index: number) => A): ByFigure<A> =>
  // The type of `Object.fromEntries` loses the names.
  Object.fromEntries(figureNames.map((name, index) => [name, valueOf(name, index)])) as ByFigure<A>

/** The figures of one sample. `NaN` if there was nothing to measure. */
export type Figures = ByFigure<number>

/** Samples, the oldest first: their times in epoch milliseconds, and a list for each figure. */
export type Series = { readonly at: ReadonlyArray<number> } & ByFigure<ReadonlyArray<number | null>>

export type BreakerState = "closed" | "half-open" | "open"

/** What a node measured last. A size is `null` where the backend does not measure it. */
export interface Current {
  /** The bytes of the database: of its files, or of its tables. */
  readonly databaseBytes: number | null
  readonly diskFreeBytes: number | null
  readonly diskSizeBytes: number | null
  readonly breakers: ReadonlyArray<{ readonly name: string; readonly state: BreakerState }>
}

/** What one node has recorded. */
export interface Recorded extends Current {
  /** When the recording began, in epoch milliseconds. */
  readonly since: number
  readonly series: Series
}

/** A node, and what it has recorded. A node that does not answer has only its id. */
export interface NodeActivity extends Partial<Recorded> {
  /** The id of this run of the node; `""` if it shares its database with no other. */
  readonly id: string
  readonly isAnswering: boolean
}

/** A tenant with one of its numbers. */
export interface TenantNumber {
  readonly tenant: string
  readonly count: number
}

/** Numbers of sessions. */
export interface SessionCounts {
  readonly total: number
  /** Those with an open turn that wait for no person, those that wait, and those whose last turn or instance failed. */
  readonly running: number
  readonly waiting: number
  readonly failed: number
  /** False if there are more sessions than are counted. */
  readonly isComplete: boolean
}

/** What the store holds. */
export interface Holdings {
  readonly entries: number
  readonly namespaces: number
  readonly tenants: number
  /** False if there are more tenants than are counted. */
  readonly isComplete: boolean
  /** `null` without a gateway. */
  readonly sessions: SessionCounts | null
  /** The tenants with the most of each, the largest first. */
  readonly largest: {
    readonly entries: ReadonlyArray<TenantNumber>
    readonly namespaces: ReadonlyArray<TenantNumber>
    readonly sessions: ReadonlyArray<TenantNumber>
  }
}

/** Where agents are reached. */
export interface AgentAddress {
  /** `null` for all types without an address of their own. */
  readonly agentType: string | null
  /** Without credentials. */
  readonly address: string
}

/** The whole answer. */
export interface Activity {
  /** The time of the answer in epoch milliseconds. */
  readonly at: number
  readonly intervalMs: number
  /** The nodes, that which answers first. Empty for a credential that is limited to a tenant. */
  readonly nodes: ReadonlyArray<NodeActivity>
  /** The number of nodes of which nothing is known, because they take no requests of others or are too many. */
  readonly unlisted: number
  /** Empty without a gateway, or if a host provides the agents. */
  readonly agents: ReadonlyArray<AgentAddress>
  /** `null` if the store did not answer in time. */
  readonly holdings: Holdings | null
}

/** How long samples are kept, and how often one is made. */
export const keptMs = 3_600_000
export const intervalMs = 5000

/** The samples of an answer, over all nodes. With each figure in at most 9 characters they take less than 1 MiB. */
export const maxSamples = 6000

/** The nodes of an answer. */
export const maxNodes = 64
