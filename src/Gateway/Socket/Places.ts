import { type Claim, FairPool } from "../FairPool.ts"
import { type CloseCode, closeCodes } from "../Protocol/CloseCode.ts"

/** A connection, as far as it can be closed. */
interface Closable {
  readonly close: (code: CloseCode) => void
}

/**
 * The places for connections, by tenant. Where all are taken, another tenant's connection takes the place of the newest
 * one of the tenant that has the most, which keeps those that have stood for long.
 */
export class Places {
  private readonly pool: FairPool
  private readonly connections = new Map<string, Map<Closable, Claim>>()

  constructor(readonly capacity: number) {
    this.pool = new FairPool({ name: "connections", capacity, takeBack: tenant => this.takeBack(tenant) })
  }

  /** Connections that have a place. */
  get used(): number {
    return this.pool.used
  }

  /** A place for another connection of a tenant, if there is one. It is to be released, or entered. */
  take(tenant: string): Claim | undefined {
    return this.pool.take(tenant, 1)
  }

  /** Gives a place to a connection, until it leaves. */
  enter(claim: Claim, connection: Closable): void {
    const known = this.connections.get(claim.holder) ?? new Map<Closable, Claim>()
    this.connections.set(claim.holder, known.set(connection, claim))
  }

  leave(tenant: string, connection: Closable): void {
    const known = this.connections.get(tenant)
    known?.get(connection)?.release()
    known?.delete(connection)
    if (known?.size === 0) this.connections.delete(tenant)
  }

  private takeBack(tenant: string): boolean {
    const newest = [...(this.connections.get(tenant)?.keys() ?? [])].at(-1)
    if (newest === undefined) return false
    this.leave(tenant, newest)
    newest.close(closeCodes.rateLimited)
    return true
  }
}
