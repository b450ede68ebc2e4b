/**
 * Valid histories: what clients might have seen of a store that does everything right, at random. The checker must pass
 * them all; `Mutations` makes invalid ones of them.
 */

import { Either } from "effect"
import * as fc from "fast-check"
import type { JsonText } from "../../src/Json/JsonText.ts"
import { tenantOf } from "../../src/Kv/Entry.ts"
import { ifVersion, isLive, type Operation as PlannedOperation, plan } from "../../src/Kv/Write.ts"
import { compare } from "../../src/Storage/KeyOrder.ts"
import * as H from "./History.ts"

/** What one client does next, in terms that always make sense. Durations are in milliseconds. */
interface Step {
  readonly client: number
  readonly kind: "put" | "delete" | "batch" | "get" | "list" | "page" | "poll"
  readonly keys: ReadonlyArray<number>
  readonly deletes: number
  readonly condition: "none" | "current" | "absent" | "wrong"
  readonly ttlMs: number
  /** Before the invocation, from there to the effect, and from there to the answer. */
  readonly pause: number
  readonly toEffect: number
  readonly toAnswer: number
  readonly fate: "answered" | "lost" | "late" | "never"
}

interface Script {
  readonly steps: ReadonlyArray<Step>
  /** The intervals at which the followers of streams receive what is new. */
  readonly followers: ReadonlyArray<number>
  readonly expiryInterval: number
  /** The store is put back at a time to the state of an earlier one, as from a backup. */
  readonly restore: { readonly backup: number; readonly at: number } | undefined
}

const weighted = <A>(...pairs: ReadonlyArray<readonly [number, A]>): fc.Arbitrary<A> =>
  fc.oneof(...pairs.map(([weight, value]) => ({ weight, arbitrary: fc.constant(value) })))

const step: fc.Arbitrary<Step> = fc.record({
  client: fc.nat(4),
  kind: weighted<Step["kind"]>(
    [6, "put"],
    [3, "delete"],
    [5, "batch"],
    [5, "get"],
    [3, "list"],
    [3, "page"],
    [3, "poll"]
  ),
  keys: fc.array(fc.nat(7), { minLength: 1, maxLength: 5 }),
  deletes: fc.nat(31),
  condition: weighted<Step["condition"]>([6, "none"], [2, "current"], [1, "absent"], [1, "wrong"]),
  ttlMs: weighted([8, 0], [1, 5], [1, 40]),
  pause: fc.nat(10),
  toEffect: fc.nat(10),
  toAnswer: fc.nat(10),
  fate: weighted<Step["fate"]>([12, "answered"], [1, "lost"], [1, "late"], [1, "never"])
})

const script = (restores: boolean): fc.Arbitrary<Script> =>
  fc.record({
    steps: fc.array(step, { maxLength: 120, size: "max" }),
    followers: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 3 }),
    expiryInterval: fc.integer({ min: 2, max: 20 }),
    restore: restores
      ? fc.record({ backup: fc.nat(150), at: fc.integer({ min: 150, max: 300 }) })
      : fc.constant(undefined)
  })

const addresses = Array.from({ length: 8 }, (_, index) => ({
  namespace: index % 3 === 0 ? "tenant:a/x" : "plain",
  key: `k${index}`
}))

interface Slot {
  readonly version: number
  readonly present: boolean
  readonly expiresAt: number | null
  readonly entry: H.Entry | undefined
}

/** The store that does everything right. */
class Store {
  private slots = new Map<string, Slot>()
  records: Array<H.Change> = []
  epoch = "first"
  private copy: { readonly slots: Map<string, Slot>; readonly records: Array<H.Change> } | undefined

  backUp(): void {
    this.copy = { slots: new Map(this.slots), records: [...this.records] }
  }

  restore(): void {
    if (this.copy === undefined) return
    this.slots = new Map(this.copy.slots)
    this.records = [...this.copy.records]
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

  list({ afterKey = "", limit = 1000, namespace, prefix }: H.ListAction, now: number): H.ListResult {
    const all = addresses
      .filter(address => address.namespace === namespace && address.key.startsWith(prefix))
      .flatMap(address => this.get(H.addressOf(address), now) ?? [])
      .filter(({ key }) => compare(key, afterKey) > 0)
      .sort((a, b) => compare(a.key, b.key))
    return { items: all.slice(0, limit), lastSeq: this.records.length, more: all.length > limit, epoch: this.epoch }
  }

  poll({ after, limit, tenant }: H.PollAction): H.PollResult {
    const all = this.records.slice(after).filter(({ tenantId }) => tenant === undefined || tenantId === tenant)
    const changes = all.slice(0, limit)
    return {
      changes,
      lastSeq: all.length > limit ? changes.at(-1)!.seq : this.records.length,
      epoch: this.epoch
    }
  }

  private append(change: Omit<H.Change, "seq" | "tenantId">, expiresAt: number | null): void {
    const { actor, key, namespace, op, timestamp, value, version } = change
    this.records.push({ ...change, seq: this.records.length + 1, tenantId: tenantOf(namespace) })
    const entry = { namespace, key, value, version, updatedBy: actor, updatedAt: timestamp, expiresAt }
    const present = op === "set"
    this.slots.set(H.addressOf(change), { version, present, expiresAt, entry: present ? entry : undefined })
  }

  /** The result, or that a precondition failed at that version. */
  write({ actor, operations }: H.WriteAction, now: number): H.WriteResult | H.Refusal {
    const planned = plan(
      {
        actor,
        operations: operations.map((operation): PlannedOperation => {
          const { key, namespace } = operation
          const condition = operation.ifVersion === undefined ? {} : { precondition: ifVersion(operation.ifVersion) }
          if (operation.op === "delete") return { op: "delete", namespace, key, ...condition }
          const expiresAt = operation.ttlMs === undefined ? null : now + operation.ttlMs
          return {
            op: "set",
            namespace,
            key,
            value: JSON.stringify(operation.value) as JsonText,
            expiresAt,
            ...condition
          }
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

/** A client that reads the log in polls. */
interface Reader {
  after: number
  epoch: string
}

class Simulation {
  private readonly store = new Store()
  private readonly events: Array<H.Event> = []
  private readonly agenda: Array<{ readonly at: number; readonly order: number; readonly run: () => void }> = []
  private readonly readers = new Map<number, Reader>()
  private readonly streams = new Map<string, Reader & { isOpen: boolean }>()
  private readonly lastKeys = new Map<number, string>()
  private readonly began = 1_767_225_600_000
  private now = 0
  private ids = 0
  private orders = 0

  constructor(private readonly script: Script) {}

  private later(delay: number, run: () => void): void {
    this.agenda.push({ at: this.now + delay, order: this.orders++, run })
  }

  private get wall(): number {
    return this.began + this.now
  }

  private get at() {
    return { time: this.events.length + 1, wall: this.wall }
  }

  private operation({ deletes, keys, kind, ttlMs, ...step }: Step, index: number): H.Operation {
    const address = addresses[keys[index]!]!
    const current = this.store.versionOf(H.addressOf(address), this.wall)
    const { condition } = step
    const version = condition === "absent" ? 0 : condition === "current" ? current : current + 1 + index
    const conditional = condition === "none" ? {} : { ifVersion: version }
    const isDelete = kind === "delete" || (kind === "batch" && ((deletes >> index) & 1) === 1)
    if (isDelete) return { op: "delete", ...address, ...conditional }
    const value = { of: this.ids + 1, index }
    return { op: "set", ...address, value, ...conditional, ...(ttlMs === 0 ? {} : { ttlMs }) }
  }

  private action(step: Step): H.Action {
    const { client, keys, kind } = step
    const address = addresses[keys[0]!]!
    const { namespace } = address
    switch (kind) {
      case "put":
      case "delete":
        return { type: "write", by: kind, actor: `w${this.ids + 1}`, operations: [this.operation(step, 0)] }
      case "batch":
        return {
          type: "write",
          by: "batch",
          actor: `w${this.ids + 1}`,
          operations: keys.map((_, index) => this.operation(step, index))
        }
      case "get":
        return { type: "get", ...address }
      case "list":
        return { type: "list", namespace, prefix: step.deletes % 4 === 0 ? "k" : "" }
      case "page": {
        const afterKey = this.lastKeys.get(client)
        return {
          type: "list",
          namespace,
          prefix: "",
          limit: keys.length,
          ...(afterKey === undefined ? {} : { afterKey })
        }
      }
      case "poll": {
        const { after } = this.reader(client)
        // A reader keeps to its part of the log.
        const tenant = client === 0 ? { tenant: "a" } : {}
        return { type: "poll", follower: `client ${client}`, after, limit: 2 * keys.length, wait: 0, ...tenant }
      }
    }
  }

  private reader(client: number): Reader {
    const known = this.readers.get(client)
    if (known !== undefined) return known
    const made = { after: 0, epoch: this.store.epoch }
    this.readers.set(client, made)
    return made
  }

  /** Does what the operation asks, and returns its outcome. */
  private perform(action: H.Action, client: number): Omit<H.Ok, keyof At | "id"> | Omit<H.Fail, keyof At | "id"> {
    switch (action.type) {
      case "write": {
        const result = this.store.write(action, this.wall)
        return "results" in result
          ? { type: "ok", result }
          : { type: "fail", reason: "precondition failed", refused: result }
      }
      case "get":
        return { type: "ok", result: { entry: this.store.get(H.addressOf(action), this.wall) } }
      case "list": {
        const result = this.store.list(action, this.wall)
        const last = result.more ? result.items.at(-1)?.key : undefined
        if (last === undefined) this.lastKeys.delete(client)
        else this.lastKeys.set(client, last)
        return { type: "ok", result }
      }
      case "poll": {
        const reader = this.reader(client)
        if (reader.epoch !== this.store.epoch) {
          reader.epoch = this.store.epoch
          reader.after = 0
          return { type: "fail", reason: "another epoch" }
        }
        const result = this.store.poll(action)
        reader.after = result.lastSeq
        return { type: "ok", result }
      }
    }
  }

  private run(steps: ReadonlyArray<Step>): void {
    const [step, ...others] = steps
    if (step === undefined) return
    const { client, fate, toAnswer, toEffect } = step
    const next = () => this.run(others)
    this.later(step.pause, () => {
      const action = this.action(step)
      const id = ++this.ids
      this.events.push({ type: "invoke", id, client: `c${client}`, node: "model", action, ...this.at })
      const lose = () => {
        this.events.push({ type: "unknown", id, reason: "lost", ...this.at })
        next()
      }
      if (fate !== "answered" && action.type === "write") {
        if (fate !== "never") {
          this.later(fate === "late" ? 20 * toEffect : toEffect, () => this.perform(action, client))
        }
        this.later(toEffect + toAnswer, lose)
        return
      }
      this.later(toEffect, () => {
        const outcome = this.perform(action, client)
        this.later(toAnswer, () => {
          this.events.push({ ...outcome, id, ...this.at })
          next()
        })
      })
    })
  }

  private follow(follower: string, count = Number.POSITIVE_INFINITY): void {
    const { store } = this
    const known = this.streams.get(follower)
    let stream = known ?? { after: 0, epoch: store.epoch, isOpen: false }
    this.streams.set(follower, stream)
    if (stream.epoch !== store.epoch) {
      this.events.push({ type: "reset", follower, ...this.at })
      stream = { after: 0, epoch: store.epoch, isOpen: false }
      this.streams.set(follower, stream)
    }
    const tenant = follower === "stream 1" ? "a" : undefined
    if (!stream.isOpen) {
      const part = tenant === undefined ? {} : { tenant }
      const by = tenant === undefined ? "socket" : "events"
      this.events.push({ type: "open", follower, node: "model", by, after: stream.after, ...part, ...this.at })
      stream.isOpen = true
    }
    const all = store.records.slice(stream.after).filter(({ tenantId }) => tenant === undefined || tenantId === tenant)
    const changes = all.slice(0, count)
    const lastSeq = changes.length < all.length ? changes.at(-1)!.seq : store.records.length
    if (lastSeq === stream.after) return
    this.events.push({ type: "seen", follower, changes, lastSeq, epoch: store.epoch, ...this.at })
    stream.after = lastSeq
    // Every third time the connection breaks.
    if (this.events.length % 3 === 0) stream.isOpen = false
  }

  private every(interval: number, until: number, run: () => void): void {
    this.later(interval, () => {
      run()
      if (this.now + interval <= until) this.every(interval, until, run)
    })
  }

  history(): H.History {
    const { expiryInterval, followers, restore, steps } = this.script
    for (const [, own] of Map.groupBy(steps, ({ client }) => client)) this.run(own)
    this.every(expiryInterval, 2000, () => this.store.expire(this.wall))
    for (const [index, interval] of followers.entries()) {
      this.every(interval, 1000, () => this.follow(`stream ${index}`, 1 + (interval % 4)))
    }
    if (restore !== undefined) {
      this.later(restore.backup, () => this.store.backUp())
      this.later(restore.at, () => this.store.restore())
    }
    for (let next = this.first(); next !== undefined; next = this.first()) {
      this.now = next.at
      next.run()
    }
    for (const [index] of followers.entries()) {
      this.follow(`stream ${index}`)
    }
    this.readAll()
    this.events.push({ type: "end", ...this.at })
    return { header: { type: "history", version: 1, seed: "model", clockError: 0 }, events: this.events }
  }

  /** The last reader reads the whole log. */
  private readAll(): void {
    const action = { type: "poll", follower: "last", after: 0, limit: 100_000, wait: 0 } as const
    const id = ++this.ids
    this.events.push({ type: "invoke", id, client: "last", node: "model", action, ...this.at })
    this.events.push({ type: "ok", id, result: this.store.poll(action), ...this.at })
  }

  private first() {
    let least = 0
    for (const [index, { at, order }] of this.agenda.entries()) {
      const known = this.agenda[least]!
      if (at < known.at || (at === known.at && order < known.order)) least = index
    }
    return this.agenda.splice(least, 1)[0]
  }
}

type At = Pick<H.Note, "time" | "wall">

/** Valid histories of one log. */
export const histories: fc.Arbitrary<H.History> = script(false).map(one => new Simulation(one).history())

/** Valid histories of a store that was put back to an earlier state, with a new epoch. */
export const restored: fc.Arbitrary<H.History> = script(true).map(one => new Simulation(one).history())
