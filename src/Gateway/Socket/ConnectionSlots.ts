import { type Claim, FairPool } from "../FairPool.ts"

/**
 * The slots for connections, shared by tenants. Where all are taken, another tenant's connection displaces the newest
 * one of the tenant that has the most, so that the oldest are kept.
 */
export class ConnectionSlots {
  private readonly pool: FairPool

  constructor(readonly capacity: number) {
    this.pool = new FairPool({ name: "connections", capacity, reclaimFirst: "newest" })
  }

  /** Slots that are taken. */
  get used(): number {
    return this.pool.used
  }

  /** A slot for another connection of a tenant, if there is one. It is offered for others once there is a connection. */
  take(tenant: string): Claim | undefined {
    return this.pool.take(tenant, 1)
  }
}
