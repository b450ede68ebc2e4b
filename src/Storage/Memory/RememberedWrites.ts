import { lifetime, overheadBytes } from "../../Kv/Idempotency.ts"
import type { IdempotencyKey } from "../../Kv/Write.ts"

/** What is kept of a write, and since when, in epoch milliseconds. */
interface Remembered {
  readonly digest: string
  readonly kept: string
  readonly keptAt: number
}

const sizeOf = ({ kept }: Remembered): number => overheadBytes + kept.length

/** The writes with idempotency keys that were applied, the oldest first. */
export class RememberedWrites {
  private readonly writes = new Map<string, Remembered>()
  private bytes = 0

  constructor(private readonly limitBytes: number) {}

  find(id: string, now: number): Remembered | undefined {
    const found = this.writes.get(id)
    return found !== undefined && found.keptAt > now - lifetime ? found : undefined
  }

  keep({ digest, id }: IdempotencyKey, kept: string, now: number): void {
    this.forget(id)
    const remembered = { digest, kept, keptAt: now }
    this.writes.set(id, remembered)
    this.bytes += sizeOf(remembered)
    for (const [oldest, { keptAt }] of this.writes) {
      if (oldest === id || (this.bytes <= this.limitBytes && keptAt > now - lifetime)) return
      this.forget(oldest)
    }
  }

  private forget(id: string): void {
    const found = this.writes.get(id)
    if (found === undefined) return
    this.writes.delete(id)
    this.bytes -= sizeOf(found)
  }
}
