import { expect, it } from "@effect/vitest"
import { Effect, Either, FastCheck as fc, type Layer, Option, Stream, TestContext } from "effect"
import * as TestClock from "effect/TestClock"
import { ChangeLog, type ChangeQuery } from "../../src/Kv/ChangeLog.ts"
import { tenantOf } from "../../src/Kv/Entry.ts"
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

const toOperation = ({ op, namespace, key, value, ttl, precondition }: OperationPlan, now: number): Operation =>
  op === "delete"
    ? del(namespace, key, precondition)
    : set(namespace, key, value, {
        expiresAt: ttl === null ? null : now + ttl,
        ...(precondition === undefined ? {} : { precondition })
      })

const perform = (model: Model, command: Command) =>
  Effect.gen(function* () {
    const store = yield* Store
    const log = yield* ChangeLog
    switch (command.do) {
      case "write": {
        const operations = command.operations.map(operation => toOperation(operation, model.now))
        const verdict = model.write(operations, command.actor)
        const outcome = yield* Effect.either(store.commit({ operations, actor: command.actor }))
        if ("index" in verdict) {
          expect(Either.flip(outcome)).toMatchObject({ right: { _tag: "PreconditionFailed", ...verdict } })
        } else {
          expect(outcome).toMatchObject({ right: { ...verdict, lastSeq: model.end } })
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
        const page = yield* Effect.either(log.read(command.query))
        if (Either.isRight(page)) expect(model.problemOf(command.query, page.right)).toBeUndefined()
        else {
          expect(model.matching(command.query)).toBeUndefined()
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
    const entries = yield* Effect.forEach(places, ({ namespace, key }) =>
      Effect.map(store.get(namespace, key), Option.getOrUndefined)
    )
    const counts = namespaces.flatMap(namespace => {
      const { length: entries } = model.list({ namespace, prefix: "" })
      return entries === 0 ? [] : [{ tenant: tenantOf(namespace), entries }]
    })
    const tenants = ["", "t"].flatMap(tenant => {
      const own = counts.filter(count => count.tenant === tenant)
      return own.length === 0
        ? []
        : [{ tenant, namespaces: own.length, entries: own.reduce((sum, { entries }) => sum + entries, 0) }]
    })
    expect((yield* store.tenants({ prefix: "", limit: 1000, tenant: "" })).tenants).toEqual(tenants)
    expect({ lastSeq: yield* log.lastSeq, changes: yield* feed(from), lists, entries }).toEqual({
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
 * Random histories against a {@link Model}; after every step all that can be read is compared.
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
      for (const life of lives(commands)) {
        yield* Effect.gen(function* () {
          yield* compare(model, 0)
          for (const command of life) {
            const before = model.end
            yield* perform(model, command)
            yield* compare(model, before)
          }
          yield* compare(model, 0)
        }).pipe(Effect.provide(layerAt(directory)))
      }
    }).pipe(Effect.scoped, Effect.provide(TestContext.TestContext))

  it(`${name} behaves like the model`, { timeout: 600_000 }, () =>
    fc.assert(
      fc.asyncProperty(history, commands => Effect.runPromise(run(commands))),
      { numRuns: runs, endOnFailure: false }
    )
  )
}
