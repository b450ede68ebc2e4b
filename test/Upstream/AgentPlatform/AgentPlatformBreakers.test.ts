/** Failing instances do not block others. */
import { describe, expect, it } from "@effect/vitest"
import { Array as Arr, Context, Duration, Effect, Either, Fiber, Layer, TestClock } from "effect"
import * as AgentPlatformClient from "../../../src/Upstream/AgentPlatform/AgentPlatformClient.ts"
import { PlatformSocket } from "../../../src/Upstream/AgentPlatform/PlatformSocket.ts"
import { AgentPlatform } from "../../../src/Upstream/AgentPlatform.ts"
import { connectionFailure, UpstreamFailure } from "../../../src/Upstream/Resilience/UpstreamFailure.ts"
import { given } from "../../Given.ts"
import { content, instance, settings } from "../Platform.ts"
import * as Stub from "../Stub.ts"

type Answer = ReturnType<typeof Stub.status>

interface Platforms {
  readonly answer?: Answer
  readonly refusal?: UpstreamFailure
  readonly elsewhere?: Answer
}

/** Instances of a tenant that does no good. */
const bad = Arr.makeBy(12, index => `bad-${index}`)

const refused = (statusCode: number) =>
  new UpstreamFailure({ operation: "connect", reason: "status", statusCode, message: "no" })

/** A platform whose bad instances answer and connect as they like; all others are well. */
const withInstances = ({
  answer = Stub.status(500),
  refusal = refused(503),
  elsewhere = request => Stub.status(200, request.url.endsWith("/instances") ? { instanceId: "i" } : content)(request)
}: Platforms = {}) => {
  const stub = Stub.make([request => (request.url.includes("/bad-") ? answer : elsewhere)(request)])
  const sockets = Layer.succeed(PlatformSocket, { open: () => refusal })
  return Effect.map(
    Layer.build(Layer.provide(AgentPlatformClient.layer(settings), Layer.merge(stub.layer, sockets))),
    context => Context.get(context, AgentPlatform)
  )
}

/** Tests of a platform of which instances or calls fail. */
const onPlatform = given(it.scoped, withInstances)

const together = { concurrency: "unbounded" } as const

const connect = (platform: typeof AgentPlatform.Service, id: string) =>
  Effect.either(Effect.scoped(platform.connect(id)))

/** Runs what ends within a time of the test's clock. */
const within = <A, E>(time: "2 seconds" | "15 seconds", effect: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(effect)
    yield* TestClock.adjust(time)
    return yield* Fiber.join(fiber)
  })

describe("instances that fail", () => {
  const reset = connectionFailure("connect", "agent platform", "ECONNRESET")
  const answers = [
    ["refuse with 503", Stub.status(503), refused(503), "2 seconds"],
    ["answer 500", Stub.status(500), refused(500), "2 seconds"],
    ["hang", Stub.hanging, reset, "15 seconds"]
  ] as const
  for (const [what, answer, refusal, limit] of answers) {
    onPlatform(`do not block calls to others when they ${what}`, { answer, refusal }, function* (platform) {
      yield* within(
        "2 seconds",
        Effect.forEach(bad, id => connect(platform, id), together)
      )
      const reads = bad.flatMap(id => Arr.makeBy(5, () => Effect.either(platform.readFile(id, "a"))))
      yield* within(limit, Effect.all(reads, together))
      // Their own breakers are open, and no others.
      const files = bad.map(id => platform.readFile(id, "a"))
      const outcomes = yield* Effect.forEach(files, call => Effect.either(call))
      expect(
        outcomes.filter(outcome => Either.isLeft(outcome) && outcome.left.message.includes("agent_instance"))
      ).toHaveLength(12)
      for (let call = 0; call < 40; call++) expect(yield* platform.readFile("well", "a")).toEqual(content)
      expect(yield* platform.create(instance)).toBe("i")
    })
  }

  let isWell = false
  const moody: Answer = request => (isWell ? Stub.status(200, content) : Stub.status(500))(request)

  onPlatform("are tried again after a cooldown", { answer: moody }, function* (platform) {
    const read = platform.readFile("bad-1", "a")
    yield* Effect.replicateEffect(Effect.either(read), 5)
    expect(yield* Effect.flip(read)).toMatchObject({
      reason: "circuit_open",
      message: "The circuit breaker of agent_instance is open; next try in 10 s"
    })
    isWell = true
    yield* TestClock.adjust("10 seconds")
    expect(yield* read).toEqual(content)
    isWell = false
    // It starts again at none.
    const again = yield* Effect.replicateEffect(Effect.either(read), 4)
    expect(again.every(Either.isLeft)).toBe(true)
    isWell = true
    expect(yield* read).toEqual(content)
  })

  onPlatform(
    "are distinguished from an unavailable platform, which blocks all calls",
    {
      answer: Stub.unreachable,
      refusal: connectionFailure("connect", "agent platform", "ECONNREFUSED"),
      elsewhere: Stub.unreachable
    },
    function* (platform) {
      yield* within(
        "2 seconds",
        Effect.forEach(bad.slice(0, 3), id => connect(platform, id), together)
      )
      expect(yield* Effect.flip(platform.readFile("well", "a"))).toMatchObject({
        reason: "circuit_open",
        message: expect.stringContaining("agent_platform")
      })
    }
  )
})

describe("a tenant's stops and creations that fail", () => {
  /** Begins calls, and lets so many seconds pass. */
  const until = (seconds: number, calls: ReadonlyArray<Effect.Effect<unknown, unknown>>) =>
    Effect.zipRight(
      Effect.fork(Effect.forEach(calls, Effect.either, together)),
      TestClock.adjust(Duration.seconds(seconds))
    )

  for (const [what, answer, limits] of [
    ["answer 500", Stub.status(500), { stop: 1, create: 1 }],
    ["hang", Stub.hanging, { stop: 5, create: 30 }]
  ] as const) {
    onPlatform(`do not block other stops when they ${what}`, { answer }, function* (platform) {
      yield* until(
        limits.stop,
        bad.map(id => platform.stop(id))
      )
      for (let call = 0; call < 10; call++) yield* platform.stop("well")
    })

    const elsewhere: Answer = request =>
      (request.headers["idempotency-key"]?.startsWith("bad") ? answer : Stub.status(201, { instanceId: "i" }))(request)

    onPlatform(`do not block other creations when creations ${what}`, { answer, elsewhere }, function* (platform) {
      const create = (idempotencyKey: string, tenant: string, isBackground = false) =>
        platform.create({ ...instance, idempotencyKey, tenant, isBackground })
      yield* until(
        limits.create,
        bad.map(key => create(key, "evil"))
      )
      expect(yield* Effect.flip(create("bad", "evil"))).toMatchObject({ reason: "circuit_open" })
      expect(yield* create("good", "honest")).toBe("i")
      yield* until(
        limits.create,
        bad.map(key => create(key, "evil", true))
      )
      expect(yield* create("good", "honest", true)).toBe("i")
    })
  }

  /** Creates an instance of a type for a tenant. */
  const createOf = (platform: typeof AgentPlatform.Service, agentType: string, tenant: string) =>
    platform.create({ ...instance, agentType, tenant })

  onPlatform(
    "are distinguished from a platform that fails for all types, which blocks all calls",
    { elsewhere: Stub.status(500) },
    function* (platform) {
      const tenants = ["a", "b", "c", "d", "e"]
      yield* Effect.forEach(tenants, tenant => Effect.either(createOf(platform, `type of ${tenant}`, tenant)))
      expect(yield* Effect.flip(platform.readFile("well", "a"))).toMatchObject({
        reason: "circuit_open",
        message: expect.stringContaining("agent_platform")
      })
    }
  )

  /** Answers creations of types with a prefix with an error. */
  const failing =
    (prefix: string): Answer =>
    request => {
      const { body } = request
      const text = body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : ""
      const isFailing = text.includes(`"agentType":"${prefix}`)
      return (isFailing ? Stub.status(500) : Stub.status(201, { instanceId: "i" }))(request)
    }

  for (const [what, types, tenants] of [
    ["of one type for several tenants", 1, 6],
    ["of several types for one tenant", 6, 1]
  ] as const) {
    onPlatform(`${what} do not block others`, { elsewhere: failing("broken") }, function* (platform) {
      const names = Arr.makeBy(tenants, index => `tenant-${index}`)
      const failed = Arr.makeBy(types, index => `broken-${index}`)
      const calls = failed.flatMap(type => names.map(tenant => createOf(platform, type, tenant)))
      for (let round = 0; round < 6; round++) yield* Effect.forEach(calls, Effect.either)
      for (const tenant of [...names, "other"]) expect(yield* createOf(platform, "well", tenant)).toBe("i")
    })
  }

  let broken = "broken"
  const byType: Answer = request => failing(broken)(request)

  onPlatform(
    "for several tenants block the type for all, until it works again",
    { elsewhere: byType },
    function* (platform) {
      const create = (tenant: string) => createOf(platform, "broken", tenant)
      for (let call = 0; call < 5; call++) yield* Effect.flip(create("a"))
      expect(yield* Effect.flip(create("a"))).toMatchObject({ message: expect.stringContaining("agent_creation") })
      yield* Effect.forEach(["b", "c", "d", "e"], tenant => Effect.flip(create(tenant)))
      expect(yield* Effect.flip(create("f"))).toMatchObject({
        reason: "circuit_open",
        message: "The circuit breaker of agent_type is open; next try in 10 s"
      })
      broken = "none"
      yield* TestClock.adjust("10 seconds")
      expect(yield* create("f")).toBe("i")
      expect(yield* create("a")).toBe("i")
    }
  )
})
