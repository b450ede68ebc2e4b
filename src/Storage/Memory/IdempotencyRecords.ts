/** The results of writes with idempotency keys, in memory. */
import { bytesOf, lifetime } from "../../Kv/Idempotency.ts"
import * as Shares from "../../Kv/IdempotencyShares.ts"
import type { IdempotencyKey } from "../../Kv/Write.ts"

interface IdempotencyRecord extends IdempotencyKey {
  readonly kept: string
  /** Epoch milliseconds. */
  readonly keptAt: number
}

const isTooOld = ({ keptAt }: IdempotencyRecord, now: number): boolean => keptAt <= now - lifetime

/** The records of a tenant, the oldest first, and their bytes. */
interface Share {
  bytes: number
  readonly records: Set<IdempotencyRecord>
}

export class IdempotencyRecords {
  /** By id, the oldest first. */
  private readonly records = new Map<string, IdempotencyRecord>()
  /** By tenant, in order of their newest record, the oldest first. */
  private readonly shares = new Map<string, Share>()
  private readonly schedule = new Shares.ComparisonSchedule()
  private total = 0
  /** The bytes of all records that were ever added. */
  private end = 0

  constructor(private readonly limitBytes: number) {}

  find(id: string, now: number): IdempotencyRecord | undefined {
    const found = this.records.get(id)
    return found === undefined || isTooOld(found, now) ? undefined : found
  }

  /** Adds a record that was not found. Returns the result of the comparison, if the tenants were compared. */
  keep(key: IdempotencyKey, kept: string, now: number): Shares.Comparison | undefined {
    const old = this.records.get(key.id)
    if (old !== undefined) this.forget(old)
    const record = { ...key, kept, keptAt: now }
    const bytes = bytesOf(kept)
    const share = this.shares.get(key.tenant) ?? { bytes: 0, records: new Set() }
    this.shares.delete(key.tenant)
    this.shares.set(key.tenant, share)
    this.records.set(key.id, record)
    share.records.add(record)
    share.bytes += bytes
    this.total += bytes
    const before = this.end
    this.end += bytes
    const isDue = Shares.isStepReached(this.limitBytes, before, this.end) || this.schedule.isDue(now)
    return isDue ? this.compare(record, bytes, now) : undefined
  }

  /** Removes records that are too old, and above the limit the oldest of large tenants, but never the newest of all. */
  private compare(newest: IdempotencyRecord, added: number, now: number): Shares.Comparison {
    for (const record of this.records.values()) {
      if (!isTooOld(record, now)) break
      this.forget(record)
    }
    const target = Shares.targetOf(this.limitBytes, this.total, added)
    let forgotten = 0
    if (this.total > target) {
      const descending = [...this.shares.values()].map(({ bytes }) => bytes).sort((one, other) => other - one)
      const most = Shares.shareOf(descending, this.total, target)
      for (const share of this.shares.values()) {
        if (this.total <= target) break
        for (const record of share.records) {
          if (share.bytes <= most || record === newest) break
          if (!isTooOld(record, now)) forgotten++
          this.forget(record)
        }
      }
    }
    this.schedule.done(now)
    return { bytes: this.total, forgotten }
  }

  private forget(record: IdempotencyRecord): void {
    const share = this.shares.get(record.tenant)!
    const bytes = bytesOf(record.kept)
    this.records.delete(record.id)
    share.records.delete(record)
    share.bytes -= bytes
    this.total -= bytes
    if (share.records.size === 0) this.shares.delete(record.tenant)
  }
}
