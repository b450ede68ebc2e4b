/**
 * Reads of single entries. Those that arrive while others are in progress share the next statement, since a statement
 * costs the server and the node several times as much as a row. A read never joins a statement that was sent before it.
 */
import { Effect, Exit } from "effect"
import * as Direct from "../../../base/Direct.ts"
import type * as Entry from "../../../Kv/Entry.ts"
import { type Address, StoreUnavailable } from "../../../Kv/Store.ts"
import { type Pool, readTimeout } from "../Database/Pool.ts"
import * as Queries from "./Queries.ts"

/** Statements in progress at a time: the second serves reads while the first has large values. */
const maxStatements = 2

/** The maximum number of entries in a statement. Each may be as large as a value can be. */
const maxEntries = 64

/** The maximum number of reads that wait for a statement. */
const maxWaiting = 10_000

type Found = Effect.Effect<Entry.StoredEntry | undefined, StoreUnavailable>

interface Waiting extends Address {
  /** By the monotonic clock, in milliseconds. */
  readonly since: number
  readonly resume: (found: Found) => void
}

const refused = (reason: string) => Exit.fail(new StoreUnavailable({ reason }))

const noop = (): void => {}

/** The reads of single entries of a node. */
export class EntryReads {
  private waiting: Array<Waiting> = []
  private statements = 0
  private isScheduled = false

  constructor(
    private readonly pool: Pick<Pool, "read">,
    /** Epoch milliseconds. */
    private readonly now: () => number
  ) {}

  /** The entry, unless it is absent or has expired. The effect is direct. */
  get(namespace: string, key: string): Found {
    return Direct.async(resume => {
      if (this.waiting.length >= maxWaiting) resume(refused("too many reads wait for the database"))
      else {
        this.waiting.push({ namespace, key, since: performance.now(), resume })
        this.schedule()
      }
      return noop
    })
  }

  /** What a turn of the event loop has received is read together. */
  private schedule(): void {
    if (this.isScheduled || this.waiting.length === 0 || this.statements === maxStatements) return
    this.isScheduled = true
    setImmediate(this.send)
  }

  private readonly send = (): void => {
    this.isScheduled = false
    const oldest = performance.now() - readTimeout
    const reads = this.waiting.splice(0, maxEntries).filter(({ resume, since }) => {
      if (since >= oldest) return true
      resume(refused(`a read has waited for ${readTimeout} ms`))
      return false
    })
    if (reads.length > 0) this.read(reads)
    this.schedule()
  }

  private read(reads: ReadonlyArray<Waiting>): void {
    this.statements++
    Direct.run(this.pool.read(Queries.getAll(reads, this.now())), Effect.runFork, exit => {
      this.statements--
      this.schedule()
      for (const [index, { resume }] of reads.entries()) {
        resume(Exit.isSuccess(exit) ? Exit.succeed(exit.value[index]) : Exit.failCause(exit.cause))
      }
    })
  }
}
