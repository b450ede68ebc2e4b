/**
 * Valid histories: what clients might have seen of a store that does everything right, at random, in simulated time.
 * The checker must pass them all; `Mutations` makes invalid ones of them.
 */
import * as fc from "fast-check"
import * as H from "../History.ts"
import { addresses, Store } from "./Store.ts"

/** What one client does next, in terms that always make sense. Durations are in milliseconds. */
export interface Step {
  readonly client: number
  readonly kind: "put" | "delete" | "batch" | "prefix" | "get" | "read" | "list" | "page" | "poll"
  readonly keys: ReadonlyArray<number>
  readonly deletes: number
  readonly condition: "none" | "current" | "absent" | "wrong"
  readonly ttlMs: number
  /** Before the invocation, from there to the effect, and from there to the answer. */
  readonly pause: number
  readonly toEffect: number
  readonly toAnswer: number
  readonly fate: "answered" | "lost" | "late" | "never"
  /** How often a write is sent at most; more than once, it has an `Idempotency-Key`. */
  readonly tries: number
  readonly bounds: number
}

export interface Script {
  readonly steps: ReadonlyArray<Step>
  /** The intervals at which the followers of streams receive new records. */
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
    [2, "prefix"],
    [5, "get"],
    [2, "read"],
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
  fate: weighted<Step["fate"]>([12, "answered"], [1, "lost"], [1, "late"], [1, "never"]),
  tries: weighted([4, 1], [1, 2], [1, 3]),
  bounds: fc.nat(15)
})

/** Scripts of up to 120 operations. */
export const script = (restores: boolean): fc.Arbitrary<Script> =>
  fc.record({
    steps: fc.array(step, { maxLength: 120, size: "max" }),
    followers: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 3 }),
    expiryInterval: fc.integer({ min: 2, max: 20 }),
    restore: restores
      ? fc.record({ backup: fc.nat(150), at: fc.integer({ min: 150, max: 300 }) })
      : fc.constant(undefined)
  })

interface Reader {
  after: number
  epoch: string
}

export class Simulation {
  private readonly store = new Store()
  private readonly events: Array<H.Event> = []
  private readonly agenda: Array<{ readonly at: number; readonly order: number; readonly run: () => void }> = []
  private readonly readers = new Map<number, Reader>()
  private readonly streams = new Map<string, Reader & { isOpen: boolean }>()
  private readonly nextPages = new Map<number, H.ListAction>()
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
    const { bounds, client, keys, kind } = step
    const address = addresses[keys[0]!]!
    const { key, namespace } = address
    const actor = `w${this.ids + 1}`
    const keyed = step.tries > 1 ? { idempotencyKey: `key of ${actor}` } : {}
    switch (kind) {
      case "put":
      case "delete":
        return { type: "write", by: kind, actor, operations: [this.operation(step, 0)], ...keyed }
      case "prefix": {
        const prefixDelete = { namespace, prefix: bounds % 2 === 0 ? "k" : key, limit: keys.length }
        return { type: "write", by: kind, actor, operations: [], prefixDelete, ...keyed }
      }
      case "batch":
        return {
          ...{ type: "write", by: "batch", actor, ...keyed },
          operations: keys.map((_, index) => this.operation(step, index))
        }
      case "get":
        return { type: "get", ...address }
      case "read":
        return { type: "read", addresses: keys.map(index => addresses[index]!) }
      case "list":
      case "page": {
        const limit = kind === "page" ? { limit: keys.length } : {}
        const next = kind === "page" ? this.nextPages.get(client) : undefined
        if (next !== undefined) return { ...next, ...limit }
        return {
          ...{ type: "list", namespace, prefix: step.deletes % 4 === 0 ? "k" : "", ...limit },
          ...(bounds & 1 ? { reverse: true } : {}),
          ...(bounds & 2 ? { count: true } : {}),
          ...(bounds & 4 && step.deletes % 2 === 0 ? { start: key } : {}),
          ...(bounds & 8 && step.deletes % 2 === 0 ? { end: `${key}!` } : {})
        }
      }
      case "poll": {
        const { after, epoch } = this.reader(client)
        // A reader keeps to its part of the log.
        const tenant = client === 0 ? { tenant: "a" } : {}
        return { type: "poll", follower: `client ${client}`, after, epoch, limit: 2 * keys.length, wait: 0, ...tenant }
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

  private perform(action: H.Action, client: number): Omit<H.Ok, keyof At | "id"> | Omit<H.Fail, keyof At | "id"> {
    switch (action.type) {
      case "write": {
        const result = this.store.write(action, this.wall)
        if ("results" in result) return { type: "ok", result }
        return { type: "fail", reason: "precondition failed", refused: result }
      }
      case "get":
        return { type: "ok", result: { entry: this.store.get(H.addressOf(action), this.wall) } }
      case "list": {
        const result = this.store.list(action, this.wall)
        const afterKey = result.more ? result.items.at(-1)?.key : undefined
        if (afterKey === undefined) this.nextPages.delete(client)
        else this.nextPages.set(client, { ...action, afterKey })
        return { type: "ok", result }
      }
      case "read":
        return { type: "ok", result: this.store.read(action, this.wall) }
      case "poll": {
        const reader = this.reader(client)
        if (reader.epoch !== this.store.epoch) {
          reader.epoch = this.store.epoch
          reader.after = 0
          return { type: "fail", reason: "another epoch", gone: true }
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
    this.later(step.pause, () => this.ask(step, this.action(step), step.fate, 1, () => this.run(others)))
  }

  /** Sends a request, and repeats it if it is a write with a key. */
  private ask(step: Step, action: H.Action, fate: Step["fate"], tries: number, whenDone: () => void): void {
    const { client, pause, toAnswer, toEffect } = step
    const isRepeated = action.type === "write" && tries < step.tries
    const next = isRepeated
      ? () => this.later(pause, () => this.ask(step, action, "answered", tries + 1, whenDone))
      : whenDone
    const id = ++this.ids
    this.events.push({ type: "invoke", id, client: `c${client}`, node: "model", action, ...this.at })
    const lose = () => {
      this.events.push({ type: "unknown", id, reason: "lost", ...this.at })
      next()
    }
    if (fate !== "answered" && action.type === "write") {
      const delay = fate === "late" ? 20 * toEffect : toEffect
      if (fate !== "never") this.later(delay, () => this.perform(action, client))
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
      const part = tenant === undefined ? { by: "socket" as const } : { by: "events" as const, tenant }
      const from = stream.after === 0 ? { after: 0 } : { after: stream.after, epoch: stream.epoch }
      this.events.push({ type: "open", follower, node: "model", ...part, ...from, ...this.at })
      stream.isOpen = true
    }
    const all = store.records.slice(stream.after).filter(({ tenantId }) => tenant === undefined || tenantId === tenant)
    const changes = all.slice(0, count)
    const lastSeq = changes.length < all.length ? changes.at(-1)!.seq : store.records.length
    if (lastSeq === stream.after) return
    this.events.push({ type: "seen", follower, changes, lastSeq, epoch: store.epoch, ...this.at })
    stream.after = lastSeq
    // Every third connection breaks.
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
    for (let next = this.takeEarliest(); next !== undefined; next = this.takeEarliest()) {
      this.now = next.at
      next.run()
    }
    for (const index of followers.keys()) this.follow(`stream ${index}`)
    this.readAll()
    this.events.push({ type: "end", ...this.at })
    return { header: { type: "history", version: 1, seed: "model", clockError: 0 }, events: this.events }
  }

  private readAll(): void {
    const action = { type: "poll", follower: "last", after: 0, limit: 100_000, wait: 0 } as const
    const id = ++this.ids
    this.events.push({ type: "invoke", id, client: "last", node: "model", action, ...this.at })
    this.events.push({ type: "ok", id, result: this.store.poll(action), ...this.at })
  }

  /** Removes the earliest entry. A linear search suffices: the agenda has at most a few entries for each client. */
  private takeEarliest() {
    let earliest = 0
    for (const [index, { at, order }] of this.agenda.entries()) {
      const known = this.agenda[earliest]!
      if (at < known.at || (at === known.at && order < known.order)) earliest = index
    }
    return this.agenda.splice(earliest, 1)[0]
  }
}

type At = Pick<H.Note, "time" | "wall">

export const histories: fc.Arbitrary<H.History> = script(false).map(one => new Simulation(one).history())

/** Valid histories of a store that was put back to an earlier state, with a new epoch. */
export const restored: fc.Arbitrary<H.History> = script(true).map(one => new Simulation(one).history())
