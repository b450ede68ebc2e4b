/**
 * A store in memory without faults. It applies writes by the production function `plan`: checks of histories that it made
 * cannot find an error of `plan`.
 */
import { Either } from "effect"
import type { JsonText } from "../../../src/base/Json/JsonText.ts"
import { compare } from "../../../src/Client/KeyOrder.ts"
import { tenantOf } from "../../../src/Kv/Entry.ts"
import { ifVersion, isLive, type Operation as PlannedOperation, plan } from "../../../src/Kv/Write.ts"
import * as H from "../History.ts"

export const addresses = Array.from({ length: 8 }, (_, index) => ({
  namespace: index % 3 === 0 ? "tenant:a/x" : "plain",
  key: `k${index}`
}))

interface Slot {
  readonly version: number
  readonly present: boolean
  readonly expiresAt: number | null
  readonly entry: H.Entry | undefined
}

export class Store {
  private slots = new Map<string, Slot>()
  records: Array<H.Change> = []
  epoch = "first"
  private idempotent = new Map<string, H.WriteResult>()
  private copy:
    | (Pick<Store, "records"> & { readonly slots: Map<string, Slot>; readonly idempotent: Map<string, H.WriteResult> })
    | undefined

  backUp(): void {
    this.copy = { slots: new Map(this.slots), records: [...this.records], idempotent: new Map(this.idempotent) }
  }

  restore(): void {
    if (this.copy === undefined) return
    this.slots = new Map(this.copy.slots)
    this.records = [...this.copy.records]
    this.idempotent = new Map(this.copy.idempotent)
    this.epoch = "second"
  }

  versionOf(address: string, now: number): number {
    const slot = this.slots.get(address)
    return isLive(slot, now) ? slot.version : 0
  }

  get(address: string, now: number): H.Entry | null {
    const slot = this.slots.get(address)
    return isLive(slot, now) ? (slot.entry ?? null) : null
  }

  private select(namespace: string, prefix: string, now: number): ReadonlyArray<H.Entry> {
    return addresses
      .filter(address => address.namespace === namespace && address.key.startsWith(prefix))
      .flatMap(address => this.get(H.addressOf(address), now) ?? [])
      .sort((a, b) => compare(a.key, b.key))
  }

  list(action: H.ListAction, now: number): H.ListResult {
    const { afterKey, count, end = "~", limit = 1000, namespace, prefix, reverse, start = "" } = action
    const selected = this.select(namespace, prefix, now).filter(({ key }) => key >= start && key < end)
    const all = (reverse ? selected.toReversed() : selected).filter(
      ({ key }) => afterKey === undefined || (reverse ? key < afterKey : key > afterKey)
    )
    const counted = count === undefined ? {} : { count: selected.length }
    const { epoch } = this
    const more = all.length > limit
    return { items: all.slice(0, limit), lastSeq: this.records.length, more, ...counted, epoch }
  }

  read({ addresses }: H.ReadAction, now: number): H.ReadResult {
    const entries = addresses.map(address => this.get(H.addressOf(address), now))
    return { entries, lastSeq: this.records.length, epoch: this.epoch }
  }

  poll({ after, limit, tenant }: H.PollAction): H.PollResult {
    const all = this.records.slice(after).filter(({ tenantId }) => tenant === undefined || tenantId === tenant)
    const changes = all.slice(0, limit)
    const lastSeq = all.length > limit ? changes.at(-1)!.seq : this.records.length
    return { changes, lastSeq, epoch: this.epoch }
  }

  private append(change: Omit<H.Change, "seq" | "tenantId">, expiresAt: number | null): void {
    const { actor, key, namespace, op, timestamp, value, version } = change
    this.records.push({ ...change, seq: this.records.length + 1, tenantId: tenantOf(namespace) })
    const entry = { namespace, key, value, version, updatedBy: actor, updatedAt: timestamp, expiresAt }
    const present = op === "set"
    this.slots.set(H.addressOf(change), { version, present, expiresAt, entry: present ? entry : undefined })
  }

  /** The result, or that a precondition failed at that version. */
  write(action: H.WriteAction, now: number): H.WriteResult | H.Refusal {
    const { idempotencyKey } = action
    const known = idempotencyKey === undefined ? undefined : this.idempotent.get(idempotencyKey)
    if (known !== undefined) return known
    const result =
      action.prefixDelete === undefined ? this.apply(action, now) : this.remove(action, action.prefixDelete, now)
    if (idempotencyKey !== undefined && "results" in result) this.idempotent.set(idempotencyKey, result)
    return result
  }

  private remove(action: H.WriteAction, { limit, namespace, prefix }: H.PrefixDelete, now: number): H.WriteResult {
    const all = this.select(namespace, prefix, now)
    const operations = all.slice(0, limit).map(({ key }) => ({ op: "delete" as const, namespace, key }))
    this.apply({ ...action, operations }, now)
    return { results: [], removed: { count: operations.length, more: all.length > limit } }
  }

  private apply({ actor, operations }: H.WriteAction, now: number): H.WriteResult | H.Refusal {
    const planned = plan(
      {
        actor,
        operations: operations.map((operation): PlannedOperation => {
          const { key, namespace } = operation
          const condition = operation.ifVersion === undefined ? {} : { precondition: ifVersion(operation.ifVersion) }
          if (operation.op === "delete") return { op: "delete", namespace, key, ...condition }
          const expiresAt = operation.ttlMs === undefined ? null : now + operation.ttlMs
          const value = JSON.stringify(operation.value) as JsonText
          return { op: "set", namespace, key, value, expiresAt, ...condition }
        })
      },
      (namespace, key) => this.slots.get(H.addressOf({ namespace, key })),
      now
    )
    if (Either.isLeft(planned)) {
      return operations.length === 1 ? { currentVersion: planned.left.currentVersion } : {}
    }
    for (const one of planned.right.steps) {
      const { actor, key, namespace, op, version } = one
      const value = one.op === "set" ? JSON.parse(one.value) : null
      const change = { op, namespace, key, value, version, actor, timestamp: now }
      this.append(change, one.op === "set" ? one.expiresAt : null)
    }
    const results = planned.right.results.map(
      (result): H.OperationResult => (result.op === "set" ? { version: result.version } : { deleted: result.deleted })
    )
    const [first] = operations
    const entry = first?.op === "set" && operations.length === 1 ? this.get(H.addressOf(first), now) : null
    return entry === null ? { results } : { results, entry }
  }

  expire(now: number): void {
    for (const { present, entry, expiresAt, version } of [...this.slots.values()]) {
      if (!present || entry === undefined || expiresAt === null || expiresAt > now) continue
      const { key, namespace } = entry
      const change = { op: "delete" as const, namespace, key, value: null, version: version + 1 }
      this.append({ ...change, actor: "expiry", timestamp: now }, null)
    }
  }
}
