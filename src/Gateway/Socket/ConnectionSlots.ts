import { type Claim, FairPool } from "../FairPool.ts"

/** A connection that can be closed for another one. */
interface Displaceable {
  readonly displace: () => void
}

/**
 * The slots for connections, shared by tenants. Where all are taken, another tenant's connection displaces the newest
 * one of the tenant that has the most, so that the oldest are kept.
 */
export class ConnectionSlots {
  private readonly pool: FairPool
  private readonly connections = new Map<string, Map<Claim, Displaceable>>()

  constructor(readonly capacity: number) {
    this.pool = new FairPool({ name: "connections", capacity, reclaim: tenant => this.reclaim(tenant) })
  }

  /** Slots that are taken. */
  get used(): number {
    return this.pool.used
  }

  /** A slot for another connection of a tenant, if there is one. */
  take(tenant: string): Claim | undefined {
    return this.pool.take(tenant, 1)
  }

  /** Says which connection a slot was taken for. */
  assign(slot: Claim, connection: Displaceable): void {
    const ofTenant = this.connections.get(slot.holder) ?? new Map<Claim, Displaceable>()
    this.connections.set(slot.holder, ofTenant.set(slot, connection))
  }

  release(slot: Claim): void {
    const ofTenant = this.connections.get(slot.holder)
    ofTenant?.delete(slot)
    if (ofTenant?.size === 0) this.connections.delete(slot.holder)
    slot.release()
  }

  private reclaim(tenant: string): boolean {
    const newest = [...(this.connections.get(tenant) ?? [])].at(-1)
    if (newest === undefined) return false
    const [slot, connection] = newest
    this.release(slot)
    connection.displace()
    return true
  }
}
