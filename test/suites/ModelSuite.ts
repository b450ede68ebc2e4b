import { expect, it } from "@effect/vitest"
import { Effect, Either, FastCheck as fc, type Layer, Option, Stream, TestContext } from "effect"
import * as TestClock from "effect/TestClock"
import { ChangeLog, type ChangeQuery } from "../../src/Kv/ChangeLog.ts"
import * as Entry from "../../src/Kv/Entry.ts"
import { Store } from "../../src/Kv/Store.ts"
import type { Operation, Precondition } from "../../src/Kv/Write.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { idOf, Model } from "./Model.ts"
import { del, expireAll, feed, list, listAll, set, start, trimAll } from "./Store/Fixture.ts"

const namespaces = ["tenant:t/x", "tenant:t", "n"]
const keys = ["a", "ab", "😀", "\uff5e"]
const places = namespaces.flatMap(namespace => keys.map(key => ({ namespace, key })))

/** A set or delete; its expiry is relative to the time of the write. */
interface OperationPlan {
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  readonly ttl: number | null
  readonly precondition: Precondition | undefined
}

type Command =
  | { readonly do: "write"; readonly operations: ReadonlyArray<OperationPlan>; readonly actor: string }
  | { readonly do: "advance"; readonly millis: number }
  | { readonly do: "expire" }
  | { readonly do: "trim"; readonly age: number }
  | { readonly do: "read"; readonly query: ChangeQuery }
  | { readonly do: "list"; readonly prefix: string; readonly after: string; readonly limit: number }
  | { readonly do: "listAll"; readonly prefix: string }
  | { readonly do: "restart" }
  /** Names what follows. Its reads of the log begin after records that are counted from here. */
  | { readonly do: "begin"; readonly what: string }

const versions = fc.oneof(
  fc.constant<"any">("any"),
  fc.array(fc.integer({ min: 0, max: 5 }), { minLength: 0, maxLength: 3 })
)

const precondition: fc.Arbitrary<Precondition | undefined> = fc.oneof(
  { weight: 6, arbitrary: fc.constant(undefined) },
  { weight: 2, arbitrary: fc.record({ match: versions }) },
  { weight: 2, arbitrary: fc.record({ noneMatch: versions }) },
  { weight: 1, arbitrary: fc.record({ match: versions, noneMatch: versions }) }
)

const operation: fc.Arbitrary<OperationPlan> = fc.record({
  op: fc.constantFrom("set", "set", "delete"),
  namespace: fc.constantFrom(...namespaces),
  key: fc.constantFrom(...keys),
  value: fc.constantFrom<unknown>(null, 1, "ü", { __proto__: null, b: 1 }),
  ttl: fc.oneof(fc.constant(null), fc.integer({ min: 1, max: 60 })),
  precondition
})

const prefix = fc.constantFrom("", "a", "ab", "b", "\ud83d", "😀", "\uff5e")

const command = (persists: boolean): fc.Arbitrary<Command> =>
  fc.oneof(
    {
      weight: 10,
      arbitrary: fc.record({
        do: fc.constant<"write">("write"),
        operations: fc.oneof(
          fc.array(operation, { minLength: 1, maxLength: 1 }),
          fc.array(operation, { minLength: 0, maxLength: 5 })
        ),
        actor: fc.constantFrom("ann", "bob")
      })
    },
    // Clocks are set back, too.
    {
      weight: 4,
      arbitrary: fc.record({ do: fc.constant<"advance">("advance"), millis: fc.integer({ min: -20, max: 60 }) })
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant<"expire">("expire") }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant<"trim">("trim"), age: fc.integer({ min: 0, max: 100 }) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant<"read">("read"),
        query: fc.record({
          after: fc.nat(40),
          limit: fc.integer({ min: 1, max: 10 }),
          tenant: fc.constantFrom("", "t", "u"),
          namespace: fc.constantFrom(undefined, undefined, ...namespaces),
          prefix: fc.option(prefix, { nil: undefined })
        })
      })
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant<"list">("list"),
        prefix,
        after: fc.constantFrom("", ...keys, "aa"),
        limit: fc.integer({ min: 1, max: 4 })
      })
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant<"listAll">("listAll"), prefix }) },
    ...(persists ? [{ weight: 1, arbitrary: fc.record({ do: fc.constant<"restart">("restart") }) }] : [])
  )

const operationIn =
  (op: OperationPlan["op"]) =>
  (key: string, options: Partial<OperationPlan> = {}): OperationPlan => ({
    ...{ op, namespace: "n", key, value: 1, ttl: null, precondition: undefined },
    ...options
  })

const sets = operationIn("set")
const deletes = operationIn("delete")
const writes = (...operations: ReadonlyArray<OperationPlan>): Command => ({ do: "write", operations, actor: "ann" })
const advance = (millis: number): Command => ({ do: "advance", millis })
const trim = (age: number): Command => ({ do: "trim", age })
const reads = (after: number, limit = 10, tenant = ""): Command => ({
  do: "read",
  query: { after, limit, tenant, namespace: undefined, prefix: undefined }
})
const expire: Command = { do: "expire" }
const firstPage: Command = { do: "list", prefix: "", after: "", limit: 1 }
const wrong = { match: [7] }
const tenant = { namespace: "tenant:t" }
const part = { namespace: "tenant:t/x" }
const soon = { ttl: 10 }

/** Removes all entries, and their records but the last. */
const clear: ReadonlyArray<Command> = [
  writes(...places.map(({ key, namespace }) => deletes(key, { namespace }))),
  ...[advance(1), trim(0)]
]

/** What is tried in any case, by what it shows. */
const known: Readonly<Record<string, ReadonlyArray<Command>>> = {
  "an empty log": [reads(0), reads(0, 1, "t"), trim(1), expire, writes()],
  "versions continue after deletes, and deletes of absent keys change nothing": [
    ...[writes(deletes("a")), writes(sets("a")), writes(sets("a", { value: null })), writes(deletes("a"))],
    ...[writes(deletes("a"), deletes("ab")), writes(sets("a")), writes()]
  ],
  "a batch is in order, also of one key": [
    writes(sets("ab")),
    writes(sets("a"), deletes("ab"), sets("a", tenant), deletes("😀")),
    writes(sets("a"), sets("a"), deletes("a"), deletes("a"), sets("a"))
  ],
  "namespaces and tenants appear and disappear within a write, and by expiry": [
    ...[
      writes(sets("a")),
      writes(sets("a", tenant), sets("ab", { ...tenant, ...soon })),
      writes(sets("a", { ...part, ...soon }))
    ],
    ...[writes(sets("ab", part), deletes("ab", part), deletes("a"), sets("a")), writes(deletes("a"), sets("ab"))],
    ...[writes(deletes("a", tenant), sets("😀", tenant), deletes("a")), writes(deletes("ab")), advance(10)],
    ...[writes(sets("a", part)), expire, trim(0), writes(sets("ab"))]
  ],
  "a batch that is refused changes nothing": [
    writes(sets("ab")),
    writes(sets("a"), deletes("ab"), sets("😀", { precondition: wrong }), sets("\uff5e")),
    writes(sets("a"))
  ],
  "time does not go back": [writes(sets("a")), advance(-60), writes(sets("a")), advance(61), writes(deletes("a"))],
  "an expiry is recorded once, by `expire` or by a set": [
    ...[writes(sets("a", soon)), writes(sets("ab", { ttl: 20 })), writes(sets("😀", { ttl: 20 })), writes(sets("b"))],
    ...[advance(9), expire, advance(1), expire, expire, writes(sets("a"))],
    ...[advance(10), writes(sets("ab")), writes(deletes("😀")), expire, expire]
  ],
  "a batch has expiries before its own records, and none if it is refused": [
    writes(sets("a", soon), sets("ab", soon)),
    advance(10),
    writes(sets("a"), sets("\uff5e", { precondition: wrong })),
    writes(sets("\uff5e"), sets("a"), deletes("ab"), sets("ab")),
    expire
  ],
  "a set moves or removes an expiry, and a delete removes it": [
    writes(...["a", "ab", "😀", "\uff5e"].map(key => sets(key, soon))),
    writes(sets("a"), sets("ab", { ttl: 20 }), sets("😀", { ttl: 5 }), deletes("\uff5e")),
    ...[advance(5), expire, advance(14), expire, advance(1), expire]
  ],
  "a page has no more if the rest was deleted or has expired": [
    ...[writes(sets("a"), sets("ab", soon), sets("😀")), writes(deletes("😀")), firstPage, advance(10), firstPage]
  ],
  "pages of the log, up to its end and beyond": [
    ...["a", "ab", "a"].flatMap(key => [writes(sets(key)), writes(sets(key, tenant))]),
    ...[1, 2, 3, 7].flatMap(limit => [reads(0, limit), reads(3, limit), reads(6, limit), reads(7, limit)]),
    ...[reads(0, 1, "t"), reads(2, 2, "t"), reads(6, 1, "t"), reads(7, 1, "t"), reads(1e9, 1000, "u")]
  ],
  "trim removes records that are older than the age": [
    ...[writes(sets("a")), writes(sets("a", tenant)), advance(10), writes(sets("ab")), trim(10), trim(9), trim(9)],
    ...[0, 1, 2, 4].flatMap(after => [reads(after), reads(after, 1, "t"), reads(after, 1, "u")]),
    writes(sets("a"))
  ],
  "trim keeps the newest record": [
    ...[writes(sets("a"), sets("a"), sets("a")), advance(1e10), trim(1), trim(1), writes(sets("a"))]
  ],
  "a tombstone is removed with its record, and not before": [
    ...[writes(sets("a")), writes(deletes("a")), advance(100), trim(10), writes(sets("a")), writes(deletes("a"))],
    ...[writes(sets("ab")), advance(100), trim(10), writes(sets("a"))]
  ],
  "the record of an older tombstone does not remove a newer one": [
    ...[writes(sets("a")), writes(deletes("a")), advance(100), writes(sets("a"), deletes("a"), sets("ab"))],
    ...[trim(10), writes(sets("a"))]
  ],
  "an entry survives its records": [
    ...[writes(sets("a")), writes(sets("a", { ttl: 200 })), writes(sets("ab")), advance(100), trim(10)],
    ...[advance(100), expire]
  ]
}

const toOperation = ({ op, namespace, key, value, ttl, precondition }: OperationPlan, now: number): Operation =>
  op === "delete"
    ? del(namespace, key, precondition)
    : set(namespace, key, value, {
        expiresAt: ttl === null ? null : now + ttl,
        ...(precondition === undefined ? {} : { precondition })
      })

const perform = (model: Model, command: Exclude<Command, { readonly do: "begin" }>, begin: number) =>
  Effect.gen(function* () {
    const store = yield* Store
    const log = yield* ChangeLog
    switch (command.do) {
      case "write": {
        const operations = command.operations.map(operation => toOperation(operation, model.now))
        const before = model.end
        const verdict = model.write(operations, command.actor)
        const outcome = yield* Effect.either(store.commit({ operations, actor: command.actor }))
        if ("index" in verdict) {
          expect(Either.flip(outcome)).toMatchObject({ right: { _tag: "PreconditionFailed", ...verdict } })
        } else {
          const timestamp = model.end > before ? { timestamp: model.log.at(-1)!.timestamp } : {}
          expect(outcome).toMatchObject({ right: { ...verdict, ...timestamp, lastSeq: model.end } })
        }
        return
      }
      case "advance":
        model.now += command.millis
        return yield* TestClock.setTime(model.now)
      case "expire": {
        const due = model.due()
        expect(yield* expireAll).toBe(due.length)
        // Any order is allowed; the model adopts the observed one.
        const expired = yield* feed(model.end)
        expect(expired.map(idOf).sort()).toEqual(due.map(idOf).sort())
        return model.expire(expired)
      }
      case "trim":
        return expect(yield* trimAll(command.age)).toBe(model.trim(command.age))
      case "read": {
        const query = { ...command.query, after: begin + command.query.after }
        const page = yield* Effect.either(log.read(query))
        if (Either.isRight(page)) expect(model.problemOf(query, page.right)).toBeUndefined()
        else {
          expect(model.matching(query)).toBeUndefined()
          expect(page.left).toMatchObject({ _tag: "HistoryTrimmed", trimmedSeq: model.trimmed })
        }
        return
      }
      case "list":
        for (const namespace of namespaces) {
          const { prefix, after, limit } = command
          const page = yield* list(namespace, { prefix, after, limit })
          const rest = model
            .list({ namespace, prefix })
            .filter(entry => after === "" || Buffer.compare(Buffer.from(entry.key), Buffer.from(after)) > 0)
          expect(page).toEqual({ entries: rest.slice(0, limit), lastSeq: model.end, more: rest.length > limit })
        }
        return
      case "listAll":
        for (const namespace of namespaces) {
          const selection = { namespace, prefix: command.prefix }
          const { lastSeq, portions } = yield* listAll(selection)
          expect([...(yield* Stream.runCollect(portions))].flat()).toEqual(model.list(selection))
          expect(lastSeq).toBe(model.end)
        }
        return
    }
  }).pipe(Effect.scoped)

/** Compares all that can be read with the model, the log from a record on. */
const compare = (model: Model, after: number) =>
  Effect.gen(function* () {
    const store = yield* Store
    const log = yield* ChangeLog
    const from = Math.max(after, model.trimmed)
    const lists = yield* Effect.forEach(namespaces, namespace => Effect.map(list(namespace), page => page.entries))
    const { entries } = yield* store.getMany(places, 1_000_000)
    const one = places[model.end % places.length]!
    const alone = Option.getOrUndefined(yield* store.get(one.namespace, one.key))
    expect(alone).toEqual(model.get(one.namespace, one.key))
    const counts = namespaces.flatMap(namespace => {
      const { length: entries } = model.list({ namespace, prefix: "" })
      return entries === 0 ? [] : [{ namespace, tenant: Entry.tenantOf(namespace), entries }]
    })
    const tenants = ["", "t"].flatMap(tenant => {
      const own = counts.filter(count => count.tenant === tenant)
      return own.length === 0
        ? []
        : [{ tenant, namespaces: own.length, entries: own.reduce((sum, { entries }) => sum + entries, 0) }]
    })
    expect((yield* store.tenants({ prefix: "", limit: 1000, tenant: "" })).tenants).toEqual(tenants)
    const names = yield* store.namespaces({ prefix: "", after: "", limit: 1000, tenant: "" })
    const byName = counts.map(({ entries: count, namespace }) => ({ namespace, count }))
    expect(names.namespaces).toEqual(byName.sort((a, b) => (a.namespace < b.namespace ? -1 : 1)))
    const decoded = entries.map(entry => entry && Entry.decode(entry))
    expect({ lastSeq: yield* log.lastSeq, changes: yield* feed(from), lists, entries: decoded }).toEqual({
      lastSeq: model.end,
      changes: model.log.slice(from),
      lists: namespaces.map(namespace => model.list({ namespace, prefix: "" })),
      entries: places.map(({ namespace, key }) => model.get(namespace, key))
    })
  })

/** The commands between restarts. */
const lives = (commands: ReadonlyArray<Command>): ReadonlyArray<ReadonlyArray<Command>> => {
  const all: Array<Array<Command>> = [[]]
  for (const command of commands) {
    if (command.do === "restart") all.push([])
    else all.at(-1)!.push(command)
  }
  return all
}

/**
 * Random and known histories against a {@link Model}; after every step all that can be read is compared.
 *
 * `layerAt` opens a store in a directory; where it `persists`, histories hold restarts as well.
 */
export const modelSuite = (
  name: string,
  options: {
    readonly layerAt: (directory: string) => Layer.Layer<Store | ChangeLog, unknown>
    readonly persists: boolean
    /** Histories to try. */
    readonly runs: number
  }
): void => {
  const { layerAt, persists, runs } = options
  const history = fc.array(command(persists), { minLength: 1, maxLength: 60, size: "max" })
  const run = (commands: ReadonlyArray<Command>) =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const model = new Model(start)
      yield* TestClock.setTime(start)
      let begin = 0
      let about = ""
      for (const life of lives(commands)) {
        yield* Effect.gen(function* () {
          yield* compare(model, 0)
          for (const command of life) {
            if (command.do === "begin") {
              begin = model.end
              about = command.what
              continue
            }
            const before = model.end
            yield* perform(model, command, begin)
            yield* compare(model, before)
          }
          yield* compare(model, 0)
        }).pipe(
          Effect.tapErrorCause(() => Effect.logError(about)),
          Effect.provide(layerAt(directory))
        )
      }
    }).pipe(Effect.scoped, Effect.provide(TestContext.TestContext))

  it(`${name} behaves like the model`, { timeout: 600_000 }, () =>
    fc.assert(
      fc.asyncProperty(history, commands => Effect.runPromise(run(commands))),
      { numRuns: runs, endOnFailure: false }
    )
  )

  it(`${name} behaves like the model in what is known to be special`, () =>
    Effect.runPromise(
      run(Object.entries(known).flatMap(([what, commands]) => [...clear, { do: "begin", what }, ...commands]))
    ))
}
