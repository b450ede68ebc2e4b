/**
 * Reads of single entries. Those that arrive while others are in progress share the next statement, since a statement
 * costs the server and the node several times as much as a row. A read never joins a statement that was sent before it.
 * A large value is read by a statement of its own, so that a statement has few bytes and small values wait for none.
 */
import { Effect, Exit } from "effect"
import * as Direct from "../../../base/Direct.ts"
import type * as Entry from "../../../Kv/Entry.ts"
import { type Address, StoreUnavailable } from "../../../Kv/Store.ts"
import { type Pool, readTimeout } from "../Database/Pool.ts"
import * as Queries from "./Queries.ts"

/** Statements in progress at a time, for small values and for large ones. */
const maxStatements = 2

/** The maximum number of entries in a statement, and of bytes of each value. */
const shared = { entries: 64, bytes: 128 * 1024 }
const alone = { entries: 1, bytes: 2 ** 31 - 1 }

/** The maximum number of reads that wait for a statement. */
const maxWaiting = 10_000

type Found = Effect.Effect<Entry.StoredEntry | undefined, StoreUnavailable>

interface Waiting extends Address {
  /** By the monotonic clock, in milliseconds. */
  readonly since: number
  readonly resume: (found: Found) => void
  /** Whether the caller was interrupted. */
  isGone: boolean
}

const refused = (reason: string) => Exit.fail(new StoreUnavailable({ reason }))

/** Reads that wait for statements of one kind. */
class Lane {
  private waiting: Array<Waiting> = []
  private statements = 0
  private isScheduled = false

  constructor(
    private readonly pool: Pick<Pool, "read">,
    private readonly now: () => number,
    private readonly most: typeof shared,
    private readonly onLarge: (read: Waiting) => void
  ) {}

  add(read: Waiting): void {
    if (this.waiting.length >= maxWaiting) return read.resume(refused("too many reads wait for the database"))
    this.waiting.push(read)
    this.schedule()
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
    const reads = this.waiting.splice(0, this.most.entries).filter(({ isGone, resume, since }) => {
      if (since >= oldest) return !isGone
      resume(refused(`a read has waited for ${readTimeout} ms`))
      return false
    })
    if (reads.length > 0) this.read(reads)
    this.schedule()
  }

  private read(reads: ReadonlyArray<Waiting>): void {
    this.statements++
    Direct.run(this.pool.read(Queries.getAll(reads, this.now(), this.most.bytes)), Effect.runFork, exit => {
      this.statements--
      this.schedule()
      for (const [index, read] of reads.entries()) {
        const found = Exit.map(exit, all => all[index]!)
        if (Exit.isSuccess(found) && found.value === "large") this.onLarge(read)
        else read.resume(Exit.map(found, one => (typeof one === "string" ? undefined : one)))
      }
    })
  }
}

/** The reads of single entries of a node. */
export class EntryReads {
  private readonly shared: Lane

  constructor(
    pool: Pick<Pool, "read">,
    /** Epoch milliseconds. */
    now: () => number
  ) {
    const large = new Lane(pool, now, alone, ({ resume }) => resume(refused("the value is too large")))
    this.shared = new Lane(pool, now, shared, read => large.add(read))
  }

  /** The entry, unless it is absent or has expired. The effect is direct. */
  get(namespace: string, key: string): Found {
    return Direct.async(resume => {
      const read: Waiting = { namespace, key, since: performance.now(), resume, isGone: false }
      this.shared.add(read)
      return () => {
        read.isGone = true
      }
    })
  }
}
