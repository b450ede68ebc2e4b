/** Several clients that write, read and follow at once, until the service ends. */
import type { HttpClient } from "@effect/platform/HttpClient"
import { Deferred, Effect, Fiber, Random, Stream } from "effect"
import type { Change } from "../../src/Kv/Api.ts"
import type { Client, Operation, Result } from "./Client.ts"
import * as ClientOf from "./Client.ts"
import { contradictions, type History } from "./History.ts"
import type { Running } from "./Service.ts"

/** The namespaces that are written to; few keys, so that writers conflict. */
export const namespaces = ["tenant:a/x", "plain"] as const

const pick = <A>(random: Random.Random, items: readonly [A, ...Array<A>]): Effect.Effect<A> =>
  Effect.map(random.nextIntBetween(0, items.length), index => items[index] ?? items[0])

const randomOperation = (random: Random.Random, marker: string): Effect.Effect<Operation> =>
  Effect.gen(function* () {
    const namespace = yield* pick(random, namespaces)
    const key = `k/${yield* random.nextIntBetween(0, 12)}`
    if ((yield* random.next) < 0.25) return { op: "delete", namespace, key }
    const padding = "·".repeat(yield* random.nextIntBetween(0, 2000))
    return { op: "set", namespace, key, value: { marker, padding } }
  })

const send = (client: Client, [first, ...others]: ReadonlyArray<Operation>, actor: string) => {
  if (first === undefined || others.length > 0)
    return client.batch(first === undefined ? [] : [first, ...others], actor)
  const { op, namespace, key } = first
  const one: Effect.Effect<typeof Result.Type, Effect.Effect.Error<ReturnType<Client["put"]>>> = op === "set"
    ? Effect.map(client.put(namespace, key, { value: first.value, actor }), ({ version }) => ({ version }))
    : client.remove(namespace, key, actor)
  return Effect.map(one, result => [result])
}

/** A service that shuts down breaks connections or answers 503; any other failure is a defect. */
const untilGone = <A, E extends { readonly _tag: string }>(work: Effect.Effect<A, E>): Effect.Effect<void> =>
  Effect.catchAll(work, error => {
    const isGone =
      error._tag === "RequestError" ||
      error._tag === "ResponseError" ||
      (error._tag === "Unsuccessful" && "status" in error && error.status === 503)
    return isGone ? Effect.void : Effect.die(error)
  })

/** Sends one write after the other, each recorded in the history, until the service ends. */
const writer = (client: Client, history: History, name: string, acknowledged: () => void): Effect.Effect<void> =>
  Effect.gen(function* () {
    const random = Random.make(name)
    for (let count = 0; ; count++) {
      const actor = `${name}-${count}`
      const size = (yield* random.next) < 0.3 ? yield* random.nextIntBetween(2, 20) : 1
      const operations = yield* Effect.forEach(Array.from({ length: size }), (_, index) =>
        randomOperation(random, `${actor}.${index}`)
      )
      history.send(actor, operations)
      history.acknowledge(actor, yield* send(client, operations, actor))
      acknowledged()
    }
  }).pipe(untilGone)

/** Follows the log from the last change that it has. */
const follower = (client: Client, followed: Array<typeof Change.Type>, by: "events" | "polling") => {
  const last = () => followed.at(-1)?.seq ?? 0
  return untilGone(
    by === "events"
      ? Stream.runForEach(client.follow(last()), change => Effect.sync(() => followed.push(change)))
      : Effect.forever(
          Effect.map(
            Effect.suspend(() => client.changes({ after: last(), wait: 30 })),
            page => followed.push(...page.changes)
          )
        )
  )
}

/** The parameters of a round of load. */
export interface Round {
  readonly service: Running
  /** The writes so far; the round adds its own. */
  readonly history: History
  /** The changes seen so far by a client that resumes in each round; the round adds to them. */
  readonly followed: Array<typeof Change.Type>
  /** Names the round, and seeds its random writes. */
  readonly name: string
  readonly writers: number
  readonly followBy: "events" | "polling"
  /** How many writes are acknowledged before the round ends. */
  readonly writes: number
  /** Ends the service while writes are in flight. */
  readonly end: Effect.Effect<void>
}

/** Writes and follows until so many writes are acknowledged, ends the service, and waits for all clients to end. */
export const run = (round: Round): Effect.Effect<void, never, HttpClient> =>
  Effect.gen(function* () {
    const client = yield* ClientOf.make(round.service.url)
    const enough = yield* Deferred.make<void>()
    const goal = round.history.acknowledged + round.writes
    const acknowledged = () => {
      if (round.history.acknowledged >= goal) Deferred.unsafeDone(enough, Effect.void)
    }
    const clients = yield* Effect.fork(
      Effect.all(
        [
          follower(client, round.followed, round.followBy),
          ...Array.from({ length: round.writers }, (_, index) =>
            writer(client, round.history, `${round.name}-w${index}`, acknowledged)
          )
        ],
        { concurrency: "unbounded", discard: true }
      )
    )
    // A client that ends before has found a dead service or a defect.
    yield* Effect.raceFirst(
      Deferred.await(enough),
      Effect.zipRight(Fiber.join(clients), Effect.dieMessage("gone early"))
    )
    yield* round.end
    yield* Fiber.join(clients)
  })

/** Where the service contradicts the history, or what a client followed. */
export const findings = (service: Running, history: History, followed: ReadonlyArray<typeof Change.Type>) =>
  Effect.gen(function* () {
    const client = yield* ClientOf.make(service.url)
    const log = yield* client.poll(0)
    const lists = yield* Effect.forEach(namespaces, client.list)
    const lost = followed.filter((change, index) => JSON.stringify(change) !== JSON.stringify(log[index]))
    return [
      ...contradictions(history, log, lists.flat()),
      ...lost.map(({ seq, actor }) => `seq ${seq} of ${actor} was followed, and the log has it no more`)
    ]
  })
