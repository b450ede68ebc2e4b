/** A client of the workload with random requests. */
import { Duration, Effect, type Random } from "effect"
import { Client, type Node, type Session } from "./Client.ts"
import * as H from "./History.ts"

/** Few keys, so that writers conflict and expiries meet writes; and a namespace whose lists take several pages. */
const spaces = [
  { namespace: "tenant:a/x", keys: 6, weight: 5 },
  { namespace: "plain", keys: 8, weight: 5 },
  { namespace: "tenant:b", keys: 60, weight: 2 }
] as const

class Draws {
  constructor(private readonly random: Random.Random) {}

  below(bound: number): Effect.Effect<number> {
    return this.random.nextIntBetween(0, bound)
  }

  oneOf<A>(items: ReadonlyArray<A>): Effect.Effect<A> {
    return Effect.map(this.below(items.length), index => items[index]!)
  }

  chance(probability: number): Effect.Effect<boolean> {
    return Effect.map(this.random.next, drawn => drawn < probability)
  }

  get space() {
    return this.oneOf(spaces.flatMap(space => Array.from({ length: space.weight }, () => space)))
  }

  get address(): Effect.Effect<H.Address> {
    return Effect.flatMap(this.space, ({ keys, namespace }) =>
      Effect.map(this.below(keys), index => ({ namespace, key: `k/${index}` }))
    )
  }
}

/** The versions that any client saw last, so that preconditions often hold. */
export type Versions = Map<string, number>

export class Worker {
  private count = 0
  private readonly draws: Draws
  private readonly client: Client
  private position: { readonly seq: number; readonly epoch: string | undefined } = { seq: 0, epoch: undefined }

  constructor(
    session: Session,
    private readonly name: string,
    private readonly nodes: ReadonlyArray<Node>,
    random: Random.Random,
    private readonly versions: Versions
  ) {
    this.draws = new Draws(random)
    this.client = new Client(session, name)
  }

  private get node(): Effect.Effect<Node> {
    return this.draws.oneOf(this.nodes)
  }

  private operation(index: number, conditions: number): Effect.Effect<H.Operation> {
    const { draws } = this
    return Effect.gen(this, function* () {
      const address = yield* draws.address
      const known = this.versions.get(H.addressOf(address)) ?? 0
      const version = (yield* draws.chance(0.8)) ? known : (yield* draws.chance(0.5)) ? 0 : Math.max(0, known - 1)
      const condition = (yield* draws.chance(conditions)) ? { ifVersion: version } : {}
      if (yield* draws.chance(0.25)) return { op: "delete", ...address, ...condition }
      const padding = "·".repeat(yield* draws.below(100))
      const ttl = (yield* draws.chance(0.08)) ? { ttlMs: 20 + (yield* draws.below(1500)) } : {}
      const value = { by: this.name, count: this.count, index, padding }
      return { op: "set", ...address, value, ...ttl, ...condition }
    })
  }

  private learn({ key, namespace }: H.Address, version: number): void {
    this.versions.set(H.addressOf({ namespace, key }), version)
  }

  /** Sends a write; with a key also again, at other nodes, until it has an answer, and at times once more. */
  private send(by: H.WriteAction["by"], operations: ReadonlyArray<H.Operation>, prefixDelete?: H.PrefixDelete) {
    return Effect.gen(this, function* () {
      const actor = `${this.name}-${this.count}`
      const isKeyed = yield* this.draws.chance(0.4)
      const action: H.WriteAction = {
        ...{ type: "write", by, actor, operations },
        ...(prefixDelete === undefined ? {} : { prefixDelete }),
        ...(isKeyed ? { idempotencyKey: actor } : {})
      }
      // A client that hangs up does not know whether it was applied.
      const hangsUp = isKeyed && (yield* this.draws.chance(0.2))
      const timeout = hangsUp ? Duration.millis(yield* this.draws.below(20)) : undefined
      let result = yield* this.client.write(yield* this.node, action, timeout)
      for (let again = 0; isKeyed && result === undefined && again < 3; again++) {
        result = yield* this.client.write(yield* this.node, action)
      }
      for (const [index, one] of (result?.results ?? []).entries()) {
        const operation = operations[index]!
        this.learn(operation, "version" in one ? one.version : 0)
      }
      if (isKeyed && result !== undefined && (yield* this.draws.chance(0.2))) {
        yield* this.client.write(yield* this.node, action)
      }
      return result
    })
  }

  /** Deletes the keys with a prefix: one key, some of ten, or all. */
  private readonly prefixDelete = Effect.gen(this, function* () {
    const { key, namespace } = yield* this.draws.address
    const prefix = yield* this.draws.oneOf([key, key.slice(0, 3), "k/"])
    yield* this.send("prefix", [], { namespace, prefix, limit: 1 + (yield* this.draws.below(12)) })
  })

  private readonly write = Effect.gen(this, function* () {
    const operation = yield* this.operation(0, 0.4)
    yield* this.send(operation.op === "set" ? "put" : "delete", [operation])
  })

  /** A batch, and often reads of its keys, one after the other at other nodes. */
  private readonly batch = Effect.gen(this, function* () {
    const { draws } = this
    const size = 1 + (yield* draws.below((yield* draws.chance(0.1)) ? 40 : 6))
    const operations = yield* Effect.forEach(Array.from({ length: size }), (_, index) => this.operation(index, 0.05))
    const sending = this.send("batch", operations)
    // Reads while it is under way, so that a part of it would show.
    const isRead = yield* draws.chance(0.5)
    const reading = !isRead
      ? Effect.void
      : Effect.forEach(operations.slice(0, 4), operation => this.read(operation), { discard: true })
    yield* Effect.all([sending, reading], { concurrency: "unbounded", discard: true })
  })

  private read(address: H.Address) {
    return Effect.gen(this, function* () {
      const { key, namespace } = address
      const known = this.versions.get(H.addressOf(address))
      const isConditional = known !== undefined && known > 0 && (yield* this.draws.chance(0.2))
      const result = yield* this.client.get(yield* this.node, namespace, key, isConditional ? known : undefined)
      if (result !== undefined && "entry" in result) this.learn(address, result.entry?.version ?? 0)
    })
  }

  private readonly readOne = Effect.flatMap(
    Effect.suspend(() => this.draws.address),
    address => this.read(address)
  )

  private readonly readMany = Effect.gen(this, function* () {
    const size = 1 + (yield* this.draws.below(8))
    const addresses = yield* Effect.forEach(Array.from({ length: size }), () => this.draws.address)
    yield* this.client.read(yield* this.node, addresses)
  })

  private readonly selection = Effect.gen(this, function* () {
    const { draws } = this
    const { keys, namespace } = yield* draws.space
    const bound = Effect.map(draws.below(keys), index => `k/${index}`)
    return {
      ...{ namespace, keys, prefix: (yield* draws.chance(0.3)) ? `k/${yield* draws.below(Math.ceil(keys / 10))}` : "" },
      ...((yield* draws.chance(0.2)) ? { start: yield* bound } : {}),
      ...((yield* draws.chance(0.2)) ? { end: yield* bound } : {}),
      ...((yield* draws.chance(0.3)) ? { reverse: true as const } : {}),
      ...((yield* draws.chance(0.4)) ? { count: true as const } : {})
    }
  })

  private readonly list = Effect.gen(this, function* () {
    const { keys: _, ...selection } = yield* this.selection
    yield* this.client.list(yield* this.node, selection)
  })

  private readonly pages = Effect.gen(this, function* () {
    const { keys, ...selected } = yield* this.selection
    const selection = { ...selected, limit: 1 + (yield* this.draws.below(Math.ceil(keys / 3))) }
    let page = yield* this.client.list(yield* this.node, selection)
    while (page?.next !== undefined) {
      const afterKey = page.items.at(-1)!.key
      page = yield* this.client.list(yield* this.node, { ...selection, afterKey }, page.next)
    }
  })

  /** Reads the log from the position that this client has reached. */
  private readonly poll = Effect.gen(this, function* () {
    const { epoch, seq: after } = this.position
    const limit = (yield* this.draws.chance(0.3)) ? 1 + (yield* this.draws.below(20)) : 1000
    const wait = (yield* this.draws.chance(0.2)) ? 1 : 0
    const named = epoch === undefined ? {} : { epoch }
    const page = yield* this.client.poll(yield* this.node, { follower: this.name, after, limit, wait, ...named }).pipe(
      Effect.catchTag("Gone", () =>
        Effect.sync(() => {
          this.position = { seq: 0, epoch: undefined }
          return undefined
        })
      )
    )
    if (page !== undefined) this.position = { seq: page.lastSeq, epoch: page.epoch }
  })

  readonly step = Effect.gen(this, function* () {
    this.count++
    const drawn = yield* this.draws.below(100)
    if (drawn < 36) return yield* this.write
    if (drawn < 51) return yield* this.batch
    if (drawn < 55) return yield* this.prefixDelete
    if (drawn < 74) return yield* this.readOne
    if (drawn < 80) return yield* this.readMany
    if (drawn < 86) return yield* this.list
    if (drawn < 91) return yield* this.pages
    return yield* this.poll
  })
}
