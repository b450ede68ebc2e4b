/** The results of writes with idempotency keys, in the tables of the store. */
import type Database from "better-sqlite3"
import { bytesOf, lifetime, overheadBytes } from "../../../Kv/Idempotency.ts"
import * as Shares from "../../../Kv/IdempotencyShares.ts"
import type { IdempotencyKey } from "../../../Kv/Write.ts"

interface IdempotencyRecord {
  readonly digest: string
  readonly outcome: string
  /** Epoch milliseconds. */
  readonly keptAt: number
  /** Its position: the bytes of all records ever added, including this one. */
  readonly upTo: number
  readonly tenant: string
}

/** A row for each record, the oldest first, and a row for each tenant with the bytes of its records. */
export class IdempotencyRecords {
  private readonly statements: ReturnType<typeof prepare>
  private readonly schedule = new Shares.ComparisonSchedule()
  /** The position of the last row, before this transaction and now; `undefined` until it is needed. */
  private start: number | undefined
  private end = 0
  /** The bytes that this transaction has added, by tenant. */
  private readonly added = new Map<string, number>()
  private expired: (IdempotencyRecord & { readonly id: string }) | undefined

  constructor(
    db: Database.Database,
    private readonly limitBytes: number
  ) {
    this.statements = prepare(db)
  }

  find(id: string, now: number): IdempotencyRecord | undefined {
    const found = this.statements.find.get(id)
    if (found === undefined || found.keptAt > now - lifetime) return found
    this.expired = { ...found, id }
    return undefined
  }

  /** Adds a record whose id was looked up in this transaction and was not found. */
  keep({ digest, id, tenant }: IdempotencyKey, outcome: string, now: number): void {
    if (this.start === undefined) this.start = this.end = this.statements.end.get() ?? 0
    const { expired } = this
    if (expired?.id === id) {
      this.statements.forget.run(expired.upTo)
      this.statements.reduce.run(bytesOf(expired.outcome), expired.tenant)
    }
    const bytes = bytesOf(outcome)
    this.end += bytes
    this.added.set(tenant, (this.added.get(tenant) ?? 0) + bytes)
    this.statements.keep.run(this.end, tenant, id, digest, now, outcome)
  }

  /** Writes the bytes of tenants, and compares the tenants if that is due. Returns the result of the comparison. */
  flush(now: number): Shares.Comparison | undefined {
    if (this.start === undefined) return undefined
    for (const [tenant, bytes] of this.added) this.statements.add.run(tenant, bytes, this.end)
    const isDue = Shares.isStepReached(this.limitBytes, this.start, this.end) || this.schedule.isDue(now)
    return isDue ? this.compare(this.end - this.start, now) : undefined
  }

  clear(): void {
    this.start = undefined
    this.added.clear()
    this.expired = undefined
  }

  private compare(added: number, now: number): Shares.Comparison {
    const { above, descending, removeEmpty, total } = this.statements
    const portion = Shares.portionOf(this.limitBytes, added)
    this.forgetOld(portion, now)
    let bytes = total.get() ?? 0
    const target = Shares.targetOf(this.limitBytes, bytes, added)
    let forgotten = 0
    if (bytes > target) {
      const share = Shares.shareOf(descending.iterate(), bytes, target)
      for (const [tenant, has] of above.all(share, portion)) {
        if (bytes <= target) break
        const gone = this.forgetOldest(tenant, has - share, now)
        bytes -= gone.bytes
        forgotten += gone.forgotten
      }
    }
    removeEmpty.run()
    this.schedule.done(now)
    return { bytes, forgotten }
  }

  /**
   * Removes expired records among the oldest. If the clock was set back, later records may have expired before them.
   */
  private forgetOld(portion: number, now: number): void {
    const { forget, oldest, reduce } = this.statements
    const first = oldest.get(1)
    if (first === undefined || (first[3] > now - lifetime && first[3] <= now)) return
    const removed = new Map<string, number>()
    for (const [upTo, tenant, bytes, keptAt] of oldest.all(portion)) {
      if (keptAt > now - lifetime || upTo === this.end) continue
      forget.run(upTo)
      removed.set(tenant, (removed.get(tenant) ?? 0) + bytes)
    }
    for (const [tenant, bytes] of removed) reduce.run(bytes, tenant)
  }

  /** Removes the oldest records of a tenant that have `excess` bytes together, except the newest of all tenants. */
  private forgetOldest(tenant: string, excess: number, now: number): Shares.Comparison {
    let bytes = 0
    let forgotten = 0
    let last = 0
    for (const [upTo, size, keptAt] of this.statements.oldestOf.all(
      tenant,
      this.end,
      Math.ceil(excess / overheadBytes)
    )) {
      if (bytes >= excess) break
      bytes += size
      last = upTo
      if (keptAt > now - lifetime) forgotten++
    }
    this.statements.forgetUpTo.run(tenant, last)
    this.statements.reduce.run(bytes, tenant)
    return { bytes, forgotten }
  }
}

const size = `${overheadBytes} + length(outcome)`

const prepare = (db: Database.Database) => ({
  find: db.prepare<[id: string], IdempotencyRecord>(
    `SELECT digest, outcome, kept_at AS keptAt, up_to AS upTo, tenant FROM remembered_writes WHERE id = ?`
  ),
  end: db.prepare<[], number | null>("SELECT max(up_to) FROM remembered_writes").pluck(),
  keep: db.prepare(
    "INSERT INTO remembered_writes (up_to, tenant, id, digest, kept_at, outcome) VALUES (?, ?, ?, ?, ?, ?)"
  ),
  add: db.prepare(
    `INSERT INTO remembered_tenants (tenant, bytes, up_to) VALUES (?, ?, ?)
     ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes, up_to = excluded.up_to`
  ),
  reduce: db.prepare("UPDATE remembered_tenants SET bytes = bytes - ? WHERE tenant = ?"),
  oldest: db
    .prepare<[limit: number], [upTo: number, tenant: string, bytes: number, keptAt: number]>(
      `SELECT up_to, tenant, ${size}, kept_at FROM remembered_writes ORDER BY up_to LIMIT ?`
    )
    .raw(),
  oldestOf: db
    .prepare<[tenant: string, before: number, limit: number], [upTo: number, bytes: number, keptAt: number]>(
      `SELECT up_to, ${size}, kept_at FROM remembered_writes WHERE tenant = ? AND up_to < ? ORDER BY up_to LIMIT ?`
    )
    .raw(),
  forget: db.prepare("DELETE FROM remembered_writes WHERE up_to = ?"),
  forgetUpTo: db.prepare("DELETE FROM remembered_writes WHERE tenant = ? AND up_to <= ?"),
  total: db.prepare<[], number | null>("SELECT sum(bytes) FROM remembered_tenants").pluck(),
  descending: db.prepare<[], number>("SELECT bytes FROM remembered_tenants ORDER BY bytes DESC").pluck(),
  // In order of their newest record, the oldest first.
  above: db
    .prepare<[share: number, limit: number], [tenant: string, bytes: number]>(
      "SELECT tenant, bytes FROM remembered_tenants WHERE bytes > ? ORDER BY up_to LIMIT ?"
    )
    .raw(),
  removeEmpty: db.prepare("DELETE FROM remembered_tenants WHERE bytes <= 0")
})
