import { type Claim, FairPool } from "../FairPool.ts"

/**
 * The slots for connections, which tenants share. If all are taken, another tenant's connection displaces the newest
 * connection of the tenant that has the most, so that the oldest are kept.
 */
export class ConnectionSlots {
  private readonly pool: FairPool

  constructor(readonly capacity: number) {
    this.pool = new FairPool({ name: "connections", capacity, reclaimFirst: "newest" })
  }

  /** Number of slots that are taken. */
  get used(): number {
    return this.pool.used
  }

  /** Takes a slot for a connection of a tenant, if there is one. It can be reclaimed once there is a connection. */
  take(tenant: string): Claim | undefined {
    return this.pool.take(tenant, 1)
  }
}
