import { it } from "@effect/vitest"
import { Chunk, Context, Effect, Fiber, Layer, Option, Redacted, Stream, TestClock } from "effect"
import * as AgentPlatformClient from "../../src/Upstream/AgentPlatform/AgentPlatformClient.ts"
import * as PlatformSocket from "../../src/Upstream/AgentPlatform/PlatformSocket.ts"
import {
  AgentPlatform,
  type ConnectionState,
  type InstanceConnection,
  Undelivered
} from "../../src/Upstream/AgentPlatform.ts"
import type { PlatformEvent } from "../../src/Upstream/PlatformEvent.ts"
import { given } from "../Given.ts"
import * as Stub from "./Stub.ts"

/** The platform's address, with a path, and its key. */
export const settings = { url: Option.some("http://platform.test/base"), apiKey: Option.some(Redacted.make("key")) }

/** Uses a client whose requests a stub answers. */
export const withPlatform = <A, E>(
  stub: ReturnType<typeof Stub.make>,
  use: (platform: typeof AgentPlatform.Service) => Effect.Effect<A, E>,
  options = settings
) =>
  Effect.flatMap(AgentPlatform, use).pipe(
    Effect.provide(AgentPlatformClient.layer(options)),
    Effect.provide(Layer.merge(stub.layer, PlatformSocket.layer({})))
  )

type Answers = Parameters<typeof Stub.make>[0]

/** Tests of a client whose requests get these answers. */
export const asked = given(it.scoped, (answers: Answers = [Stub.refused]) =>
  Effect.gen(function* () {
    const stub = Stub.make(answers)
    const layers = Layer.merge(stub.layer, PlatformSocket.layer({}))
    const context = yield* Layer.build(Layer.provide(AgentPlatformClient.layer(settings), layers))
    return { stub, platform: Context.get(context, AgentPlatform) }
  })
)

/** A request for an instance. */
export const instance = {
  agentType: "coder",
  deployment: { region: "eu" },
  secrets: { TOKEN: Redacted.make("s3cret") },
  environment: { LANG: "C" }
}

/** Advances the clock past waits and time limits. */
export const finish = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(Effect.either(effect))
    yield* TestClock.adjust("5 minutes")
    return yield* Fiber.join(fiber)
  })

/** An answer to a request for a file. */
export const content = { content: "hello", encoding: "utf-8", iteration: 3, size: 5, hash: "h" }

/** The events of an instance. */
export const eventsOf = <E>({ take }: InstanceConnection<E>): Stream.Stream<PlatformEvent, E> =>
  Stream.paginateChunkEffect(undefined, () =>
    Effect.map(take, ([values, isDone]) => [
      Chunk.fromIterable(values.flatMap(value => (value instanceof Undelivered ? [] : [value]))),
      isDone ? Option.none() : Option.some(undefined)
    ])
  )

/** The current state of a connection. */
export const stateOf = <E>({ states }: InstanceConnection<E>): Effect.Effect<ConnectionState> =>
  Effect.flatMap(Stream.runHead(states), Effect.orDie)
