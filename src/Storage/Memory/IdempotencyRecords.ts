/** The results of writes with idempotency keys, in memory. */
import { bytesOf, lifetime } from "../../Kv/Idempotency.ts"
import * as Shares from "../../Kv/IdempotencyShares.ts"
import type { IdempotencyKey } from "../../Kv/Write.ts"

/** The stored result of a write. */
interface IdempotencyRecord {
  readonly tenant: string
  readonly id: string
  readonly digest: string
  readonly kept: string
  /** Epoch milliseconds. */
  readonly keptAt: number
}

/** The records of a tenant. */
interface Share {
  bytes: number
  /** In order of age, the oldest first. */
  readonly writes: Set<IdempotencyRecord>
}

/** The results of the writes with idempotency keys. */
export class IdempotencyRecords {
  /** By id, the oldest first. */
  private readonly writes = new Map<string, IdempotencyRecord>()
  /** By tenant, in order of their newest record, the oldest first. */
  private readonly shares = new Map<string, Share>()
  private readonly schedule = new Shares.ComparisonSchedule()
  private total = 0
  /** The bytes of all records that were ever added. */
  private end = 0

  constructor(private readonly limitBytes: number) {}

  find(id: string, now: number): IdempotencyRecord | undefined {
    const found = this.writes.get(id)
    return found !== undefined && found.keptAt > now - lifetime ? found : undefined
  }

  /** Adds a record. Returns the result of the comparison, if the tenants were compared. */
  keep({ digest, id, tenant }: IdempotencyKey, kept: string, now: number): Shares.Comparison | undefined {
    const old = this.writes.get(id)
    if (old !== undefined) this.forget(old)
    const record = { tenant, id, digest, kept, keptAt: now }
    const bytes = bytesOf(kept)
    const share = this.shares.get(tenant) ?? { bytes: 0, writes: new Set() }
    this.shares.delete(tenant)
    this.shares.set(tenant, share)
    this.writes.set(id, record)
    share.writes.add(record)
    share.bytes += bytes
    this.total += bytes
    const before = this.end
    this.end += bytes
    const isDue = Shares.isStepReached(this.limitBytes, before, this.end) || this.schedule.isDue(now)
    return isDue ? this.compare(record, bytes, now) : undefined
  }

  private compare(newest: IdempotencyRecord, added: number, now: number): Shares.Comparison {
    const portion = Shares.portionOf(this.limitBytes, added)
    for (const write of this.oldest(this.writes.values(), newest, portion)) {
      if (isTooOld(write, now)) this.forget(write)
    }
    const target = Shares.targetOf(this.limitBytes, this.total, added)
    let forgotten = 0
    if (this.total > target) {
      const descending = [...this.shares.values()].map(({ bytes }) => bytes).sort((one, other) => other - one)
      const maxBytes = Shares.shareOf(descending, this.total, target)
      for (const share of [...this.shares.values()]) {
        if (this.total <= target) break
        for (const write of this.oldest(share.writes.values(), newest, portion)) {
          if (share.bytes <= maxBytes) break
          if (!isTooOld(write, now)) forgotten++
          this.forget(write)
        }
      }
    }
    this.schedule.done(now)
    return { bytes: this.total, forgotten }
  }

  /** The first `portion` records, except the newest of all. */
  private *oldest(
    writes: Iterable<IdempotencyRecord>,
    newest: IdempotencyRecord,
    portion: number
  ): Generator<IdempotencyRecord> {
    let left = portion
    for (const write of writes) {
      if (write !== newest && left-- > 0) yield write
    }
  }

  private forget(write: IdempotencyRecord): void {
    const share = this.shares.get(write.tenant)
    if (share === undefined || !share.writes.delete(write)) return
    const bytes = bytesOf(write.kept)
    this.writes.delete(write.id)
    this.total -= bytes
    share.bytes -= bytes
    if (share.writes.size === 0) this.shares.delete(write.tenant)
  }
}

const isTooOld = ({ keptAt }: IdempotencyRecord, now: number): boolean => keptAt <= now - lifetime
