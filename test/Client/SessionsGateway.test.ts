/** The client of sessions with the gateway itself. */
import { Option, Redacted } from "effect"
import * as fc from "fast-check"
import { describe, expect, it } from "vitest"
import { Fold, type SessionEvent, type Sessions, type SessionUpdate } from "../../src/Client/Client.ts"
import { secret, tokenUntil } from "../Gateway/survival/Token.ts"
import { times } from "../Scale.ts"
import { withGatewayInTurns, withRealGateway } from "./GatewayHarness.ts"
import { ManualClock, passUntil, randomBy, range, turns, until } from "./Harness.ts"
import { Received } from "./ScriptedGateway.ts"

/** Reads until an update is as asked, and returns it. */
const next = async <A extends SessionUpdate>(
  updates: AsyncIterable<SessionUpdate>,
  matches: (update: SessionUpdate) => update is A
): Promise<A> => {
  for await (const update of updates) if (matches(update)) return update
  return expect.fail("The updates have ended")
}

const eventOf =
  <Type extends SessionEvent["type"]>(type: Type) =>
  (
    update: SessionUpdate
  ): update is Extract<SessionUpdate, { type: "event" }> & { readonly event: Extract<SessionEvent, { type: Type }> } =>
    update.type === "event" && update.event.type === type

/** The texts of the agent. */
const textOf = (updates: ReadonlyArray<SessionUpdate>): string =>
  updates
    .map(update => (update.type === "event" && update.event.type === "text_delta" ? update.event.text : ""))
    .join("")

const converse = async (sessions: Sessions, sessionId: string, content: string): Promise<void> => {
  const { turnId } = await sessions.send(sessionId, content)
  await next(
    sessions.subscribe(sessionId),
    (update): update is SessionUpdate =>
      update.type === "event" && update.event.type === "turn_completed" && update.event.turnId === turnId
  )
}

/** The events of a session that exist. */
const eventsOf = async (sessions: Sessions, sessionId: string): Promise<ReadonlyArray<SessionEvent>> => {
  const events: Array<SessionEvent> = []
  for await (const update of sessions.subscribe(sessionId)) {
    if (update.type === "event") events.push(update.event)
    if (update.type === "synced") break
  }
  return events
}

const transports = ["webSocket", "http"] as const

/** What finds a request in the log: the id of its trace, or its own. */
const traceIds = { webSocket: /^[0-9a-f]{32}$/, http: /^[0-9a-f]+-\d+$/ }

describe.each(transports)("with the gateway by %s, the client of sessions", transport => {
  it("shows the conversation over restarts as all events make it, and reads backwards in them", () =>
    withRealGateway(async ({ connect, direct, restart }) => {
      const sessions = connect({ transport })
      const { id } = await sessions.create("echo")
      for (const content of ["/all", "/write a.txt text", "/long 200"]) await converse(sessions, id, content)
      let fold = Fold.resume(Fold.empty(""))
      const story: Array<string> = []
      const reading = (async () => {
        for await (const update of sessions.subscribe(id, { fold: true })) {
          if (update.type === "conversation") fold = Fold.resume(update.conversation)
          if (update.type === "event") Fold.add(fold, update.event)
          if (story.at(-1) !== update.type) story.push(update.type)
        }
      })().catch(() => {})
      await until(() => story.includes("synced"))
      await restart()
      await converse(sessions, id, "hello")
      const all = await eventsOf(direct(), id)
      await until(() => fold.conversation.seq >= all.length)
      const whole = Fold.resume(Fold.empty(all.length === 0 ? "" : fold.conversation.epoch))
      for (const event of all) Fold.add(whole, event)
      expect(fold.conversation).toEqual(whole.conversation)
      expect(story).toEqual(["conversation", "synced", "event"])

      const backwards: Array<SessionEvent> = []
      for (let page = await sessions.events(id, { limit: 7 }); ; ) {
        backwards.unshift(...page.events)
        if (!page.hasOlder) break
        page = await sessions.events(id, { limit: 7, beforeSeq: page.events[0]!.seq, epoch: page.epoch })
      }
      expect(backwards).toEqual(all)
      sessions.close()
      await reading
    }))

  it("makes, lists, starts, stops and deletes sessions", () =>
    withRealGateway(async ({ connect }) => {
      const sessions = connect({ transport })
      const made = await sessions.create("echo", { title: "mine", environment: { MODE: "test" } })
      expect(made).toMatchObject({ state: "inactive", tenant: "dev", agentType: "echo", title: "mine" })
      const other = await sessions.create("echo")
      const pages: Array<ReadonlyArray<string>> = []
      for await (const page of sessions.list({ limit: 1 })) pages.push(page.sessions.map(({ id }) => id))
      expect(pages.flat().sort()).toEqual([made.id, other.id].sort())
      expect(await sessions.start(made.id)).toMatchObject({ state: "active" })
      expect(await sessions.get(made.id)).toMatchObject({ state: "active" })
      expect(await sessions.stop(made.id)).toMatchObject({ state: "inactive" })
      const received = new Received(sessions.subscribe(made.id))
      await until(() => received.story.includes("synced"))
      await sessions.delete(made.id)
      await received.done
      expect(received.ended?.error).toMatchObject({ _tag: "RequestRefused", code: "not_found" })
      const gone = await sessions.get(made.id).catch(error => error)
      expect(gone).toMatchObject({ code: "not_found", traceId: expect.stringMatching(traceIds[transport]) })
    }))

  it("holds a conversation: messages, questions, approvals, interruptions", () =>
    withRealGateway(async ({ connect }) => {
      const sessions = connect({ transport })
      const { id } = await sessions.create("echo")
      const received = new Received(sessions.subscribe(id))
      await converse(sessions, id, "Grüße, 世界 😀")
      await until(() => received.seqs.length > 0 && textOf(received.updates).endsWith("😀"))
      expect(textOf(received.updates)).toBe("echo: Grüße, 世界 😀")
      const same = await sessions.send(id, "once", { clientMessageId: "m" })
      expect(await sessions.send(id, "once", { clientMessageId: "m" })).toEqual(same)
      expect(await sessions.send(id, "other", { clientMessageId: "m" }).catch(error => error)).toMatchObject({
        code: "conflict"
      })
      const question = next(sessions.subscribe(id), eventOf("question_requested"))
      await sessions.send(id, "/ask")
      await sessions.answer(id, (await question).event.requestId, "blue")
      const resolved = await next(sessions.subscribe(id), eventOf("question_resolved"))
      expect(resolved.event.answer).toBe("blue")
      const { turnId } = await sessions.send(id, "/hang")
      expect(await sessions.interrupt(id)).toBe(turnId)
      const interrupted = await next(sessions.subscribe(id), eventOf("turn_interrupted"))
      expect(interrupted.event.turnId).toBe(turnId)
    }))

  it("continues after a gateway was shut down, and after one was killed", () =>
    withGatewayInTurns(async ({ connect, drain, restart }) => {
      const clock = new ManualClock()
      const statuses: Array<string> = []
      const sessions = connect({ clock, transport, onStatus: ({ type }) => statuses.push(type) })
      const { id } = await sessions.create("echo")
      const received = new Received(sessions.subscribe(id))
      await converse(sessions, id, "one")
      void drain()
      await until(() => statuses.at(-1) === "disconnected")
      await restart()
      const sent = sessions.send(id, "two")
      let isSent = false
      void sent.then(() => {
        isSent = true
      })
      await passUntil(clock, () => isSent && textOf(received.updates).endsWith("two"))
      expect(textOf(received.updates)).toBe("echo: oneecho: two")
      expect(received.seqs).toEqual(range(1, received.seqs.length))
    }))

  it("continues with another token when one has expired", () =>
    withGatewayInTurns(
      async ({ connect, now }) => {
        const clock = new ManualClock()
        const used = new Set<number>()
        let expiry = 0
        const token = async () => {
          // It is valid for a second at least, which is long by the time of the gateway.
          if (expiry <= (await now()) / 1000 + 1) expiry = Math.floor((await now()) / 1000) + 3
          used.add(expiry)
          return tokenUntil(expiry, "acme")
        }
        const sessions = connect({ clock, transport, token })
        const { id } = await sessions.create("echo")
        const received = new Received(sessions.subscribe(id))
        for (const round of range(1, 3)) {
          const before = used.size
          await passUntil(clock, () => used.size > before)
          let isSent = false
          void sessions.send(id, String(round)).then(() => {
            isSent = true
          })
          await passUntil(clock, () => isSent && textOf(received.updates).endsWith(String(round)))
        }
        expect(textOf(received.updates)).toBe("echo: 1echo: 2echo: 3")
        expect(received.seqs).toEqual(range(1, received.seqs.length))
        expect(used.size).toBeGreaterThanOrEqual(4)
      },
      { authentication: { secret: Option.some(Redacted.make(secret)) } }
    ))
})

describe("with the gateway, the client of sessions", () => {
  it("reads files and their history", () =>
    withRealGateway(async ({ connect }) => {
      const sessions = connect()
      const { id } = await sessions.create("echo")
      await converse(sessions, id, "/write a.md one")
      await converse(sessions, id, "/write a.md two")
      expect((await sessions.listFiles(id)).map(({ path }) => path)).toContain("a.md")
      expect(await sessions.readFile(id, "a.md")).toMatchObject({ path: "a.md", content: "two", encoding: "utf-8" })
      const iterations = await sessions.fileHistory(id, "a.md")
      expect(iterations.map(({ size }) => size)).toEqual([3, 3])
      expect(await sessions.fileAtIteration(id, "a.md", iterations[0]!.iteration)).toMatchObject({ content: "one" })
      expect(await sessions.readFile(id, "../up").catch(error => error)).toMatchObject({ code: "bad_request" })
    }))
})

const disturbances = ["cut", "silence", "restart"] as const

type Step = { readonly type: "send"; readonly words: number } | { readonly type: (typeof disturbances)[number] }

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ type: fc.constant("send" as const), words: fc.integer({ min: 1, max: 60 }) }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constantFrom(...disturbances) }) }
)

it.each(transports)(
  "by %s, subscribers see exactly the history, whatever is cut when",
  { timeout: 600_000 },
  async transport => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 1, maxLength: 8 }),
        fc.constantFrom(500, 5000, 1_000_000),
        fc.nat({ max: 3 }),
        fc.nat(),
        (steps, maxQueuedBytes, pace, seed) =>
          withGatewayInTurns(async ({ connect, direct, proxy, restart }) => {
            const clock = new ManualClock(randomBy(seed))
            const sessions = connect({ clock, maxQueuedBytes, transport })
            const { id } = await direct().create("echo")
            const slow = new Received(sessions.subscribe(id), () => turns(pace))
            const quick = new Received(sessions.subscribe(id))
            const last: Step = { type: "send", words: 1 }
            for (const step of [...steps, last]) {
              if (step.type === "cut") proxy.cut()
              else if (step.type === "silence") proxy.silence()
              else if (step.type === "restart") await restart()
              else if (step.type === "send") await direct().send(id, range(1, step.words).join(" "))
            }
            const isOver = async () => (await direct().get(id)).headSeq
            let head = await isOver()
            const hasAll = () => Math.min(slow.seqs.length, quick.seqs.length) >= head
            for (let before = -1; before !== head || !hasAll(); head = await isOver()) {
              before = head
              await passUntil(clock, hasAll)
            }
            for (const { story } of [slow, quick]) {
              expect(story.filter(one => typeof one === "number").slice(0, head)).toEqual(range(1, head))
              expect(story.filter(one => typeof one !== "number")).toEqual(["synced"])
            }
            expect(await direct().list()[Symbol.asyncIterator]().next()).toMatchObject({ done: false })
          })
      ),
      { numRuns: times(3), endOnFailure: true }
    )
  }
)
