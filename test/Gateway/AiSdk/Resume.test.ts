/** Chats that are resumed and stopped, by the AI SDK's own chat, unmodified. */
import { Chat } from "@ai-sdk/react"
import { assert, describe, expect, it } from "@effect/vitest"
import { DefaultChatTransport } from "ai"
import { Effect, Fiber, Option, Redacted } from "effect"
import { SignJWT } from "jose"
import { pass } from "../../../src/Simulator/Testing/Time.ts"
import { make, timed } from "../Socket/Fixture.ts"
import { secret } from "../survival/Token.ts"
import { history, open, settled, shown, textOf, transports, Watched } from "./Fixture.ts"

const authentication = { secret: Option.some(Redacted.make(secret)) }

/** A token that is valid for the first minute of the test's clock. */
const brief = Effect.promise(() =>
  new SignJWT({ tenant: "acme", sub: "anna" })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(60)
    .sign(new TextEncoder().encode(secret))
)

/** Time between two events of the agent. */
const slow = { simulator: { pace: "1 second" } } as const

/** Lets time pass until a chat is as wanted. */
const passUntil = (isWanted: () => boolean) => Effect.repeat(pass("1 second", "1 second"), { until: isWanted })

const hasText = (one: Watched) => one.chat.messages.length > 1 && textOf(one.last) !== ""

const isReady = (one: Watched) => () => one.chat.status === "ready"

/** Sends a message, whose answer the test does not wait for. */
const send = (one: Watched, text: string) => Effect.fork(settled(() => one.chat.sendMessage({ text })))

describe.each(transports)("a chat over %s", kind => {
  timed("is resumed in the middle, by two tabs, which get the whole message", slow, function* ({ chats }) {
    const first = yield* open(chats, kind, { id: "c" })
    const sent = yield* send(first, "/long 12")
    yield* passUntil(() => hasText(first))
    const messages = yield* history(chats, "c")
    const tabs = yield* Effect.replicateEffect(open(chats, kind, { id: "c", messages }), 2)
    const resumed = yield* Effect.forEach(tabs, ({ chat }) => Effect.fork(settled(() => chat.resumeStream())))
    // No time passes, so that the agent does nothing.
    yield* Effect.forEach(tabs, tab => tab.until(() => hasText(tab)))
    const isHalf = textOf(tabs[0]!.last) === textOf(first.last)
    yield* passUntil(() => [first, ...tabs].every(each => each.chat.status === "ready"))
    yield* Effect.all([Fiber.join(sent), Fiber.joinAll(resumed)])
    assert.isTrue(isHalf)
    const whole = yield* history(chats, "c")
    assert.strictEqual(textOf(whole[1]!), "1 2 3 4 5 6 7 8 9 10 11 12 ")
    for (const { chat } of [first, ...tabs]) assert.deepStrictEqual(shown(chat.messages), shown(whole))
  })

  timed("is resumed before the first token, and not when nothing runs", function* ({ chats }) {
    const first = yield* open(chats, kind, { id: "c" })
    yield* settled(() => first.chat.resumeStream())
    assert.deepStrictEqual([first.chat.status, first.chat.messages], ["ready", []])
    yield* send(first, "/hang")
    yield* first.until(({ messages }) => messages.length === 2)
    const tab = yield* open(chats, kind, { id: "c", messages: first.chat.messages.slice(0, 1) })
    yield* Effect.fork(settled(() => tab.chat.resumeStream()))
    yield* tab.until(({ messages }) => messages.length === 2)
    assert.strictEqual(tab.last.id, first.last.id)
    const stopped = yield* Effect.promise(() => fetch(`${chats}/c/stream`, { method: "DELETE" }))
    assert.strictEqual(stopped.status, 204)
    yield* Effect.forEach([first, tab], each => each.until(({ status }) => status === "ready"))
    for (const each of [first, tab]) expect(each.last.metadata).toMatchObject({ status: "interrupted" })
    yield* settled(() => tab.chat.resumeStream())
    assert.strictEqual(tab.chat.messages.length, 2)
    const again = yield* Effect.promise(() => fetch(`${chats}/c/stream`, { method: "DELETE" }))
    assert.strictEqual(again.status, 204)
  })

  timed("a message whose send has failed is sent again, by a regeneration or without arguments", function* (gateway) {
    const { chats, simulator } = gateway
    const one = yield* open(chats, kind, { id: "c" })
    yield* settled(() => one.chat.sendMessage({ text: "hi" }))
    for (const again of [() => one.chat.regenerate(), () => one.chat.sendMessage()]) {
      yield* simulator.refuse("platform", true)
      yield* simulator.disconnect()
      yield* send(one, "lost")
      yield* Effect.repeat(pass("10 seconds", "1 second"), { until: () => one.chat.status === "error" })
      yield* simulator.refuse("platform", false)
      // The connection to the instance is restored after a while.
      const trying = Effect.gen(function* () {
        const sent = yield* Effect.fork(settled(again))
        yield* passUntil(() => one.chat.status !== "submitted" && one.chat.status !== "streaming")
        yield* Fiber.join(sent)
      })
      yield* Effect.repeat(trying, { until: () => !/could not be sent/.test(String(one.chat.error?.message)) })
      assert.strictEqual(one.chat.error, undefined)
      assert.strictEqual(textOf(one.last), "echo: lost")
    }
    const messages = yield* history(chats, "c")
    assert.deepStrictEqual(messages.map(textOf), ["hi", "echo: hi", "lost", "echo: lost", "lost", "echo: lost"])
    assert.deepStrictEqual(shown(messages), shown(one.chat.messages))
  })

  timed("a stop after a resume ends the turn over a WebSocket, and the stream over HTTP", function* ({ chats }) {
    const first = yield* open(chats, kind, { id: "c" })
    yield* send(first, "/hang")
    yield* first.until(({ messages }) => messages.length === 2)
    const tab = yield* open(chats, kind, { id: "c", messages: yield* history(chats, "c") })
    yield* Effect.fork(settled(() => tab.chat.resumeStream()))
    yield* tab.until(({ status }) => status === "streaming")
    yield* settled(() => tab.chat.stop())
    assert.strictEqual(tab.chat.status, "ready")
    yield* pass("3 seconds", "1 second")
    if (kind === "http") assert.strictEqual(first.chat.status, "streaming")
    else yield* first.until(({ status }) => status === "ready")
  })

  timed("a stop ends the client's stream, and over a WebSocket also the turn", function* ({ chats }) {
    const first = yield* open(chats, kind, { id: "c" })
    yield* send(first, "/hang")
    yield* first.until(({ messages }) => messages.length === 2)
    const tab = yield* open(chats, kind, { id: "c" })
    yield* Effect.fork(settled(() => tab.chat.resumeStream()))
    yield* tab.until(({ messages }) => messages.length === 1)
    yield* settled(() => first.chat.stop())
    yield* pass("3 seconds", "1 second")
    if (kind === "http") {
      const [, message] = yield* history(chats, "c")
      assert.notProperty(message?.metadata ?? {}, "status")
      return
    }
    yield* tab.until(({ status }) => status === "ready")
    expect(tab.last.metadata).toMatchObject({ status: "interrupted" })
  })

  timed("a stop that is followed by a resume does not end the turn", slow, function* ({ chats }) {
    const first = yield* open(chats, kind, { id: "c" })
    yield* send(first, "/long 12")
    yield* passUntil(() => hasText(first))
    yield* settled(() => first.chat.stop())
    const resumed = yield* Effect.fork(settled(() => first.chat.resumeStream()))
    yield* first.until(({ status }) => status === "streaming")
    yield* passUntil(isReady(first))
    yield* Fiber.join(resumed)
    assert.strictEqual(textOf(first.last), "1 2 3 4 5 6 7 8 9 10 11 12 ")
    expect(first.last.metadata).toMatchObject({ status: "completed" })
  })

  timed("is resumed where messages have a tool that is running, without any part twice", slow, function* ({ chats }) {
    const first = yield* open(chats, kind, { id: "c" })
    yield* send(first, "hi")
    yield* passUntil(() =>
      first.last.parts.some(part => part.type === "dynamic-tool" && part.state === "input-available")
    )
    const tab = yield* open(chats, kind, { id: "c", messages: yield* history(chats, "c") })
    assert.isAbove(tab.last.parts.length, 1)
    const resumed = yield* Effect.fork(settled(() => tab.chat.resumeStream()))
    yield* tab.until(({ status }) => status === "streaming")
    yield* passUntil(isReady(tab))
    yield* Fiber.join(resumed)
    assert.deepStrictEqual(shown(tab.chat.messages), shown(yield* history(chats, "c")))
  })

  timed("ends with an error when the token expires", { authentication }, function* ({ chats }) {
    const one = yield* open(chats, kind, { id: "c" }, yield* brief)
    yield* send(one, "/hang")
    yield* one.until(({ messages }) => messages.length === 2)
    yield* Effect.repeat(pass("10 seconds"), { until: () => one.chat.status === "error" })
    assert.strictEqual(one.chat.error?.message, "The token has expired")
  })

  timed(
    "is cut when the service stops, so that the client does not take the message for whole",
    function* ({ chats, stop }) {
      const one = yield* open(chats, kind, { id: "c" })
      yield* send(one, "/hang")
      yield* one.until(({ messages }) => messages.length === 2)
      yield* Effect.fork(stop)
      yield* Effect.repeat(pass("1 second", "1 second"), { until: () => one.chat.status === "error" })
      assert.instanceOf(one.chat.error, TypeError)
    }
  )

  it.scopedLive("has what it had after a restart of the service in the middle of a turn, and continues", () =>
    Effect.gen(function* () {
      const { start } = yield* make({ simulator: { pace: "10 millis" } })
      const gateway = yield* start
      const first = yield* open(gateway.chats, kind, { id: "c" })
      yield* send(first, "/long 60")
      yield* first.until(() => hasText(first))
      yield* gateway.kill
      yield* first.until(({ status }) => status === "error")
      const { chats } = yield* start
      const tab = yield* open(chats, kind, { id: "c", messages: first.chat.messages.slice(0, 1) })
      // Attaches, because the message is known.
      yield* settled(() => tab.chat.sendMessage())
      assert.deepStrictEqual(
        [tab.chat.status, tab.chat.error?.message],
        ["error", "The gateway was restarted during the turn"]
      )
      expect(tab.last.metadata).toMatchObject({ status: "failed", error: { code: "gateway_restarted" } })
      assert.strictEqual(tab.last.id, first.last.id)
      assert.isTrue(textOf(tab.last).startsWith(textOf(first.last)), "nothing that was seen is lost")
      assert.deepStrictEqual(shown(tab.chat.messages), shown(yield* history(chats, "c")))
      yield* settled(() => tab.chat.resumeStream())
      assert.deepStrictEqual([tab.chat.status, tab.chat.messages.length], ["ready", 2])
      yield* settled(() => tab.chat.sendMessage({ text: "hi" }))
      assert.strictEqual(textOf(tab.last), "echo: hi")
    })
  )
})

timed(
  "a chat that the network has cut is resumed with what it had, without any part twice",
  slow,
  function* ({ chats }) {
    const cut = Promise.withResolvers<never>()
    const fetchCut: typeof fetch = async (input, init) => {
      const response = await fetch(input, init)
      if (init?.method !== "POST") return response
      const reader = response.body!.getReader()
      const pull = async (controller: ReadableStreamDefaultController) => {
        const { value } = await Promise.race([reader.read(), cut.promise])
        controller.enqueue(value)
      }
      return new Response(new ReadableStream({ pull }), response)
    }
    const one = new Watched(new Chat({ id: "c", transport: new DefaultChatTransport({ api: chats, fetch: fetchCut }) }))
    const sent = yield* send(one, "/long 12")
    yield* passUntil(() => hasText(one))
    // As browsers say it.
    cut.reject(new TypeError("network error"))
    yield* Fiber.join(sent)
    assert.strictEqual(one.chat.status, "error")
    // The package keeps the message that it was reading.
    const resumed = yield* Effect.fork(settled(() => one.chat.resumeStream()))
    yield* one.until(({ status }) => status === "streaming")
    yield* passUntil(isReady(one))
    yield* Fiber.join(resumed)
    assert.deepStrictEqual(shown(one.chat.messages), shown(yield* history(chats, "c")))
  }
)
