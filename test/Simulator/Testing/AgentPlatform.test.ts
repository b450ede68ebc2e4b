/** The agent platform in memory behaves as the simulated one does behind its client. */
import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, Layer, Stream } from "effect"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import * as AgentPlatformInMemory from "../../../src/Simulator/Testing/AgentPlatform.ts"
import { AgentPlatform, type InstanceConnection, type Received } from "../../../src/Upstream/AgentPlatform.ts"
import { upstreams } from "../../Gateway/Fixture.ts"

const simulated = Layer.unwrapScoped(Effect.map(Simulator.make({ seed: 1 }), simulator => upstreams(simulator)))

const request = { agentType: "echo", deployment: null, secrets: {}, environment: {} }

/** Takes events up to the first of a type. */
const takeUntil = (connection: InstanceConnection<unknown>, type: string) =>
  Effect.gen(function* () {
    const taken: Array<Received> = []
    while (!taken.some(event => "type" in event && event.type === type)) {
      const [values] = yield* connection.take
      taken.push(...values)
      if (values.length === 0) return yield* Effect.dieMessage(`The instance ended without ${type}`)
    }
    return taken.flatMap(event => ("type" in event ? [event] : []))
  })

const typesOf = (events: ReadonlyArray<{ readonly type: string }>) => events.map(({ type }) => type)

for (const [name, platforms] of [
  ["in memory", AgentPlatformInMemory.layer()],
  ["simulated, behind its client", simulated]
] as const) {
  describe(`an agent platform, ${name}`, () => {
    it.scopedLive("plays a turn, keeps files, and ends", () =>
      Effect.gen(function* () {
        const platform = yield* AgentPlatform
        const instanceId = yield* platform.create({ ...request, idempotencyKey: "k" })
        expect(yield* platform.create({ ...request, idempotencyKey: "k" })).toBe(instanceId)
        const connection = yield* platform.connect(instanceId)
        yield* connection.send({ type: "message", content: "/write notes.md one", turnId: "t1" })
        const first = yield* takeUntil(connection, "turn.completed")
        expect(typesOf(first).slice(0, 2)).toEqual(["instance.starting", "instance.ready"])
        expect(typesOf(first)).toContain("file.created")
        yield* connection.send({ type: "message", content: "/write notes.md two", turnId: "t2" })
        yield* takeUntil(connection, "turn.completed")

        const content = yield* platform.readFile(instanceId, "notes.md")
        expect(content).toMatchObject({ content: "two", encoding: "utf-8", iteration: 2 })
        expect((yield* platform.fileAtIteration(instanceId, "notes.md", 1)).content).toBe("one")
        expect((yield* platform.fileHistory(instanceId, "notes.md")).map(({ iteration }) => iteration)).toEqual([1, 2])
        expect((yield* platform.listFiles(instanceId)).map(({ path }) => path)).toContain("notes.md")
        for (const path of ["../up", "/etc/passwd"]) {
          expect(yield* Effect.flip(platform.readFile(instanceId, path))).toMatchObject({ _tag: "InvalidFileRequest" })
        }
        expect(yield* Effect.flip(platform.readFile(instanceId, "nowhere"))).toMatchObject({ statusCode: 404 })

        yield* platform.stop(instanceId)
        yield* platform.stop(instanceId)
        expect(typesOf(yield* takeUntil(connection, "instance.stopped"))).toContain("instance.stopping")
        expect((yield* connection.take)[1]).toBe(true)
        expect(
          Chunk.last(yield* Stream.runCollect(Stream.takeUntil(connection.states, state => state === "closed")))
        ).toEqual(Chunk.last(Chunk.of("closed")))
        expect(yield* Effect.flip(platform.connect(instanceId))).toMatchObject({ statusCode: 404 })
      }).pipe(Effect.provide(platforms))
    )

    it.scopedLive("resumes after an event, asks, and is interrupted", () =>
      Effect.gen(function* () {
        const platform = yield* AgentPlatform
        const instanceId = yield* platform.create(request)
        const last = yield* Effect.scoped(
          Effect.gen(function* () {
            const connection = yield* platform.connect(instanceId)
            return (yield* takeUntil(connection, "instance.ready")).at(-1)?.id
          })
        )
        const connection = yield* platform.connect(instanceId, { after: last })
        yield* connection.send({ type: "message", content: "/ask", turnId: "t1" })
        const asked = yield* takeUntil(connection, "question.asked")
        expect(typesOf(asked)[0]).toBe("turn.started")
        const requestId = String(asked.at(-1)?.payload.requestId)
        yield* connection.send({ type: "answer", requestId, answer: "blue" })
        yield* takeUntil(connection, "turn.completed")
        yield* connection.send({ type: "message", content: "/hang", turnId: "t2" })
        yield* takeUntil(connection, "message.start")
        yield* connection.send({ type: "interrupt", turnId: "t2" })
        expect(typesOf(yield* takeUntil(connection, "turn.cancelled"))).toContain("turn.cancelled")
        // A claim that is refused sends nothing.
        yield* connection.send({ type: "message", content: "late", turnId: "t3" }, { claim: () => false })
        yield* connection.send({ type: "message", content: "/drop", turnId: "t4" })
        const events = yield* takeUntil(connection, "turn.completed")
        expect(events.flatMap(({ payload }) => (payload.turnId === "t3" ? [payload] : []))).toEqual([])
      }).pipe(Effect.provide(platforms))
    )
  })
}
