/**
 * Counts snapshots, in total and for each tenant. A tenant may have three quarters of them, because snapshots cannot be
 * revoked. Namespaces without a tenant may have all. If the total is one, any tenant may take it.
 */
export class SnapshotShares {
  private held = 0
  private readonly byTenant = new Map<string, number>()
  private readonly maxOfOne: number

  constructor(private readonly max: number) {
    this.maxOfOne = Math.max(1, Math.floor(0.75 * max))
  }

  /** Takes a snapshot for a tenant, or for `""`. Returns a function that returns it; `undefined` if none is free. */
  take(tenant: string): (() => void) | undefined {
    const own = this.byTenant.get(tenant) ?? 0
    if (this.held >= this.max || (tenant !== "" && own >= this.maxOfOne)) return undefined
    this.held++
    this.byTenant.set(tenant, own + 1)
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.held--
      const left = (this.byTenant.get(tenant) ?? 0) - 1
      if (left > 0) this.byTenant.set(tenant, left)
      else this.byTenant.delete(tenant)
    }
  }
}
