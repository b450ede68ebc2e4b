/** The memory of what streams keep of conversations, as a part of what all clients share. */
import type { Claim, FairPool } from "../FairPool.ts"

/** Bytes by which it grows before it is counted again. */
const step = 64 * 1024

/** What one stream keeps. */
export class Kept {
  private constructor(
    private readonly claim: Claim,
    private readonly characters: () => number
  ) {}

  /** Takes its memory, if there is room for it. `characters` is how many it has at present, two bytes each. */
  static take(pool: FairPool, tenant: string, characters: () => number): Kept | undefined {
    const claim = pool.take(tenant, 2 * characters())
    return claim && new Kept(claim, characters)
  }

  /** Counts it again. Returns whether there is room for it. */
  count(): boolean {
    const bytes = 2 * this.characters()
    return Math.abs(bytes - this.claim.size) < step || this.claim.resize(bytes)
  }

  /** Lets other tenants take the memory. `onReclaim` is called then: the stream has to end. */
  offer(onReclaim: () => void): void {
    this.claim.offer({ onReclaim })
  }

  /** Idempotent. */
  release(): void {
    this.claim.release()
  }
}
