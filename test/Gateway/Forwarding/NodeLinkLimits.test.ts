/** The connection between two nodes, over real sockets: what it holds, and what it leaves to other tenants. */
import { request as httpsRequest } from "node:https"
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber, Option, Queue, TestClock } from "effect"
import * as NodeClient from "../../../src/Gateway/Forwarding/NodeClient.ts"
import * as Security from "../../../src/Gateway/Forwarding/NodeLink.ts"
import { encodeCommand, type Reply, tenantHeader } from "../../../src/Gateway/Forwarding/NodeLink.ts"
import type * as NodeServer from "../../../src/Gateway/Forwarding/NodeServer.ts"
import { onlyLong } from "../../Scale.ts"
import { test } from "../../Tests.ts"
import { command, failureOf, owner, quick, secret, server } from "./Fixture.ts"

describe("the link between nodes", () => {
  test.scopedLive("a command that is interrupted at any step holds no memory", function* () {
    // Room for one command and its reply.
    const link = yield* NodeClient.make(secret, { ...quick, bytes: 8 * 1024 })
    const send = link.send(owner("127.0.0.1:1"), command("x"))
    for (let step = 0; step < 128; step++) {
      const fiber = yield* Effect.fork(Effect.withMaxOpsBeforeYield(send, 10 + (step % 16)))
      for (let index = 0; index < step / 16; index++) yield* Effect.yieldNow()
      yield* Fiber.interrupt(fiber)
      assert.strictEqual(yield* failureOf(send), "NodeUnreachable", `interrupted after ${step} steps`)
    }
  })

  /** A node whose work for tenants with the prefix `greedy` does not end, and how often it was started. */
  const withGreedy = (limits?: NodeServer.Options["limits"]) =>
    Effect.gen(function* () {
      const begun = yield* Queue.unbounded<void>()
      const { address } = yield* server(
        ({ tenant }) =>
          tenant.startsWith("greedy")
            ? Effect.zipRight(Queue.offer(begun, undefined), Effect.never)
            : Effect.succeed("turn"),
        limits
      )
      return { address, awaitBegun: (count: number) => Queue.takeN(begun, count) }
    })

  /** The code of a failure that a node answers with. */
  const codeOf = (reply: Reply) => (reply.is === "failure" ? reply.failure.code : reply.is)

  // Commands wait for their share by the test's clock, and for their connections by the true time.
  test.scoped("leaves connections to other tenants, however many slow requests one has", function* () {
    const { address, awaitBegun } = yield* withGreedy()
    const link = yield* NodeClient.make(secret, { connect: "1 minute", connections: 8 })
    const send = (tenant: string) => link.send(owner(address), command("x", "a", tenant))
    for (let index = 0; index < 6; index++) yield* Effect.forkScoped(send("greedy"))
    yield* awaitBegun(6)
    // Requests above its share are refused.
    const more = yield* Effect.forkScoped(Effect.replicateEffect(failureOf(send("greedy")), 20, { concurrency: 20 }))
    for (let index = 0; index < 3; index++) assert.deepInclude(yield* send(`other ${index}`), { is: "answer" })
    yield* TestClock.adjust("60 seconds")
    assert.deepStrictEqual(new Set(yield* more), new Set(["SessionsBusy"]))
    assert.deepInclude(yield* send("other"), { is: "answer" })
  })

  test.scopedLive("leaves what a node takes of others to other tenants too", function* () {
    const { address, awaitBegun } = yield* withGreedy({ commands: 8 })
    const links = yield* Effect.all([NodeClient.make(secret), NodeClient.make(secret)])
    const send = (tenant: string, link: number) => links[link]!.send(owner(address), command("x", "a", tenant))
    const greedy = yield* Effect.forEach([0, 1, 0, 1, 0, 1], link => Effect.forkScoped(send("greedy", link)))
    yield* awaitBegun(6)
    for (const link of [0, 1]) {
      const refused = yield* send("greedy", link)
      assert.strictEqual(codeOf(refused), "rate_limited")
      assert.deepInclude(yield* send("other", link), { is: "answer" })
    }
    // What has ended makes room.
    yield* greedy[0]!.interruptAsFork(greedy[0]!.id())
    const again = yield* Effect.forkScoped(Effect.repeat(send("greedy", 0), { until: reply => reply.is !== "failure" }))
    yield* awaitBegun(1)
    yield* again.interruptAsFork(again.id())
  })

  const large = "x".repeat(100_000)

  for (const [what, sending, taking, content] of [
    ["connections", { connections: 4 }, {}, "x"],
    ["bytes that a node sends", { bytes: 420_000 }, {}, large],
    ["commands that a node takes", {}, { commands: 4 }, "x"],
    ["bytes that a node takes", {}, { bytes: 420_000 }, large]
  ] as const) {
    test.scopedLive(`displaces the oldest command of the largest tenant where two have all ${what}`, function* () {
      const { address, awaitBegun } = yield* withGreedy(taking)
      const link = yield* NodeClient.make(secret, sending)
      const send = (tenant: string) => link.send(owner(address), command(content, "a", tenant))
      const begin = (tenant: string) => Effect.zipLeft(Effect.forkScoped(send(tenant)), awaitBegun(1))
      const oldest = yield* begin("greedy 1")
      const others = [yield* begin("greedy 1"), yield* begin("greedy 1"), yield* begin("greedy 2")]
      assert.deepInclude(yield* send("other"), { is: "answer" })
      assert.deepStrictEqual(yield* oldest, { is: "displaced" })
      // There is room for one that takes no more than its share.
      const last = yield* begin("greedy 2")
      for (const fiber of [...others, last]) assert.isTrue(Option.isNone(yield* Fiber.poll(fiber)))
    })
  }

  test.scopedLive("bounds the bytes of commands on both sides, by tenant and in all", function* () {
    const content = "x".repeat(100_000)
    const taking = yield* withGreedy({ bytes: 500_000 })
    const link = yield* NodeClient.make(secret)
    const send = (tenant: string) => link.send(owner(taking.address), command(content, "a", tenant))
    for (let index = 0; index < 3; index++) yield* Effect.forkScoped(send("greedy"))
    yield* taking.awaitBegun(3)
    assert.strictEqual(codeOf(yield* send("greedy")), "rate_limited")
    assert.deepInclude(yield* send("other"), { is: "answer" })

    const sending = yield* withGreedy()
    const bounded = yield* NodeClient.make(secret, { bytes: 500_000 })
    const sendBounded = (tenant: string) => bounded.send(owner(sending.address), command(content, "a", tenant))
    for (let index = 0; index < 3; index++) yield* Effect.forkScoped(sendBounded("greedy"))
    yield* sending.awaitBegun(3)
    assert.strictEqual(yield* failureOf(sendBounded("greedy")), "SessionsBusy")
    assert.deepInclude(yield* sendBounded("other"), { is: "answer" })

    const talking = yield* server(() => Effect.succeed("x".repeat(1024 * 1024)))
    const large = Effect.asVoid(link.send(owner(talking.address), command("x")))
    assert.strictEqual(yield* failureOf(large), "NodeSilent")
  })

  /** Posts what is no command, and returns the status. */
  const post = (port: number, headers: Readonly<Record<string, string | number>>, body: string, path = "/commands") =>
    Effect.async<number>(resume => {
      const request = httpsRequest(
        { ...Security.ofClient(secret), host: "127.0.0.1", port, method: "POST", path, headers, agent: false },
        response => {
          response.resume()
          response.on("end", () => resume(Effect.succeed(response.statusCode!)))
        }
      )
      request.on("error", () => resume(Effect.succeed(0)))
      request.write(body)
      request.end()
    })

  test.scopedLive("has all of its memory after whatever it refuses", function* () {
    const { address, port } = yield* server(() => Effect.succeed("turn"), { bytes: 6 * 1024 * 1024 })
    const large = "x".repeat(5 * 1024 * 1024)
    const text = encodeCommand(command("x"))
    const sized = (body: string) => ({ "content-length": body.length })
    for (let round = 0; round < 5; round++) {
      assert.strictEqual(yield* post(port, sized(large), large), 413)
      assert.strictEqual(yield* post(port, sized(large), large, "/other"), 404)
      assert.strictEqual(yield* post(port, {}, "{}"), 411)
      assert.strictEqual(yield* post(port, { ...sized("{}"), [tenantHeader]: "acme" }, "{}"), 400)
      assert.strictEqual(yield* post(port, sized(text), text), 400)
      const mismatch = { ...sized(text), [tenantHeader]: "another" }
      assert.strictEqual(yield* post(port, mismatch, text), 400)
    }
    const link = yield* NodeClient.make(secret)
    // Nearly the share of a tenant.
    assert.deepInclude(yield* link.send(owner(address), command("x".repeat(3_900_000))), { is: "answer" })
  })

  onlyLong(test.scopedLive)(
    "gives up a node that does not read its answer, so that others have the room",
    function* () {
      const large = "x".repeat(32 * 1024 * 1024)
      const { address, port } = yield* server(
        (_, __, content) => Effect.succeed(content === "large" ? large : "turn"),
        {
          commands: 1,
          // Long enough for a command to be refused in the meantime.
          unread: "3 seconds"
        }
      )
      const text = encodeCommand(command("large"))
      yield* Effect.acquireRelease(
        Effect.async<ReturnType<typeof httpsRequest>>(resume => {
          const headers = { "content-length": text.length, [tenantHeader]: "acme" }
          const to = { ...Security.ofClient(secret), host: "127.0.0.1", port, method: "POST", path: "/commands" }
          const request = httpsRequest({ ...to, headers, agent: false }, response => {
            response.pause()
            resume(Effect.succeed(request))
          })
          request.on("error", () => undefined).end(text)
        }),
        request => Effect.sync(() => request.destroy())
      )
      const link = yield* NodeClient.make(secret)
      assert.strictEqual(codeOf(yield* link.send(owner(address), command("quick"))), "rate_limited")
      yield* Effect.repeat(Effect.delay(link.send(owner(address), command("quick")), "20 millis"), {
        until: ({ is }) => is === "answer"
      })
    }
  )
})
