/** Several clients that write, read and follow at once, until the service ends. */
import type { HttpClient } from "@effect/platform/HttpClient"
import { Deferred, Effect, Fiber, Option, Random, Stream } from "effect"
import type { Operation, OperationResult, TransportName } from "../../src/exports/client.ts"
import * as Client from "../../src/exports/clientEffect.ts"
import type { Change } from "../../src/Kv/Api.ts"
import * as ClientOf from "./Client.ts"
import { contradictions, type History } from "./History.ts"
import { key, type Running } from "./Service.ts"

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

const send = (client: ClientOf.RunningClient, operations: ReadonlyArray<Operation>, actor: string) => {
  const [first] = operations
  if (first === undefined || operations.length > 1) return client.batch(operations, { actor })
  const { op, namespace, key } = first
  const one: Effect.Effect<OperationResult, Client.ClientError> =
    op === "set"
      ? Effect.map(client.set(namespace, key, first.value, { actor }), ({ version }) => ({ version }))
      : Effect.map(client.delete(namespace, key, { actor }), deleted => ({ deleted }))
  return Effect.map(one, result => [result])
}

/** A service that is gone breaks connections; any other failure is a defect. */
const untilGone = <A, E extends { readonly _tag: string }>(work: Effect.Effect<A, E>): Effect.Effect<void> =>
  Effect.catchAll(work, error => (ClientOf.isUnanswered(error) ? Effect.void : Effect.die(error)))

/**
 * Sends one write after the other, each recorded in the history, until the service ends. One that is answered 503 may be
 * done or not. Before `isEnding` that comes from a slow disk, and the next one is sent.
 */
const writer = (
  client: ClientOf.RunningClient,
  history: History,
  name: string,
  acknowledged: () => void,
  isEnding: () => boolean
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const random = Random.make(name)
    for (let count = 0; ; count++) {
      const actor = `${name}-${count}`
      const size = (yield* random.next) < 0.3 ? yield* random.nextIntBetween(2, 20) : 1
      const operations = yield* Effect.forEach(Array.from({ length: size }), (_, index) =>
        randomOperation(random, `${actor}.${index}`)
      )
      history.send(actor, operations)
      const results = yield* send(client, operations, actor).pipe(
        Effect.asSome,
        Effect.catchIf(
          error => ClientOf.statusOf(error) === 503,
          () => Effect.succeedNone
        )
      )
      if (Option.isNone(results)) {
        if (isEnding()) return
        continue
      }
      history.acknowledge(actor, results.value)
      acknowledged()
    }
  }).pipe(untilGone)

/** Follows the log from the last change that it has, as long as it runs: it waits for a service that is gone. */
const follower = (url: string, followed: Array<typeof Change.Type>, by: TransportName) =>
  Effect.flatMap(Client.make({ baseUrl: url, token: key, transports: [by] }), client =>
    client.follow({ after: followed.at(-1)?.seq ?? 0 }).pipe(
      Stream.runForEach(event =>
        event.type === "change"
          ? Effect.sync(() => followed.push(event.change))
          : Effect.dieMessage(`The follower received ${event.type}`)
      ),
      Effect.orDie
    )
  )

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
  readonly followBy: TransportName
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
    let isEnding = false
    const goal = round.history.acknowledged + round.writes
    const acknowledged = () => {
      if (round.history.acknowledged >= goal) Deferred.unsafeDone(enough, Effect.void)
    }
    const following = yield* Effect.fork(follower(round.service.url, round.followed, round.followBy))
    const clients = yield* Effect.fork(
      Effect.all(
        Array.from({ length: round.writers }, (_, index) =>
          writer(client, round.history, `${round.name}-w${index}`, acknowledged, () => isEnding)
        ),
        { concurrency: "unbounded", discard: true }
      )
    )
    // A client that ends before has found a dead service or a defect.
    yield* Effect.raceFirst(
      Deferred.await(enough),
      Effect.zipRight(Effect.raceFirst(Fiber.join(clients), Fiber.join(following)), Effect.dieMessage("gone early"))
    )
    isEnding = true
    yield* round.end
    yield* Fiber.join(clients)
    yield* Fiber.interrupt(following)
  })

/** Where the service contradicts the history, or what a client followed. */
export const findings = (
  service: Pick<Running, "url">,
  history: History,
  followed: ReadonlyArray<typeof Change.Type>
) =>
  Effect.gen(function* () {
    const client = yield* ClientOf.make(service.url)
    const log = yield* ClientOf.persist(client.poll(0))
    const lists = yield* Effect.forEach(namespaces, name => ClientOf.persist(client.entries(name)))
    const lost = followed.filter((change, index) => JSON.stringify(change) !== JSON.stringify(log[index]))
    return [
      ...contradictions(history, log, lists.flat()),
      ...lost.map(({ seq, actor }) => `seq ${seq} of ${actor} was followed, and the log has it no more`)
    ]
  })
