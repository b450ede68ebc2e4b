/** The PostgreSQL of the benchmark: its own cluster with the relevant settings of a production server. */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import pg from "pg"
import * as Server from "../../../test/postgres/Server.ts"
import { BenchFailed } from "../BenchFailed.ts"
import { endedProcessorSeconds, treeSeconds } from "../Process.ts"

export interface Database {
  readonly version: string
  /** The address of a new database. */
  readonly create: (name: string) => Effect.Effect<string, BenchFailed>
  /** CPU time of all processes of the server, in seconds. */
  readonly processorSeconds: Effect.Effect<number, BenchFailed>
  /** The number of groups of writes that were committed in a database of the service. */
  readonly commits: (url: string) => Effect.Effect<number, BenchFailed>
}

const failed = (error: unknown) => new BenchFailed({ reason: `PostgreSQL: ${String(error)}` })

const query = <A extends pg.QueryResultRow>(connectionString: string, text: string) =>
  Effect.tryPromise({
    try: async () => {
      const client = new pg.Client({ connectionString })
      await client.connect()
      try {
        return (await client.query<A>(text)).rows
      } finally {
        await client.end()
      }
    },
    catch: failed
  })

const settings = { shared_buffers: "512MB", max_wal_size: "4GB", synchronous_commit: "on", fsync: "on" }

/** A server over a new cluster in a directory, until the scope closes. */
export const start = (directory: string): Effect.Effect<Database, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    if (Server.reasonToSkip !== undefined) return yield* failed(Server.reasonToSkip)
    const cluster = join(directory, "cluster")
    const server = yield* Effect.acquireRelease(
      Effect.tryPromise({
        try: async () => {
          Server.initialize(cluster)
          return Server.start(cluster, await Server.freePort(), settings)
        },
        catch: failed
      }),
      server => Effect.promise(() => server.stop("fast"))
    )
    const [row] = yield* query<{ server_version: string }>(server.urlOf("postgres"), "SHOW server_version")
    const postmaster = Number(readFileSync(join(cluster, "postmaster.pid"), "utf8").split("\n")[0])
    return {
      version: row?.server_version ?? "",
      create: name => Effect.as(query(server.urlOf("postgres"), `CREATE DATABASE ${name}`), server.urlOf(name)),
      // A pool closes idle connections, and with each its process ends.
      processorSeconds: Effect.suspend(() =>
        Effect.zipWith(endedProcessorSeconds(postmaster), treeSeconds(postmaster), (ended, running) => ended + running)
      ),
      commits: url =>
        Effect.map(
          query<{ done: string }>(
            url,
            "SELECT coalesce(sum(n_tup_ins), 0) AS done FROM pg_stat_user_tables WHERE relname = 'commits'"
          ),
          ([row]) => Number(row?.done)
        )
    }
  })
