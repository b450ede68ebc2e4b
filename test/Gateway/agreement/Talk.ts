/** A conversation that five clients follow at the same time, and in which each of them sends. */
import { hash } from "node:crypto"
import { assert } from "@effect/vitest"
import { Cause, Effect, type Scope } from "effect"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import type { Sessions } from "../../../src/Client/Sessions.ts"
import type { Changes } from "../../../src/Simulator/Changes.ts"
import { AgUiClient, type End } from "./AgUiClient.ts"
import * as Canonical from "./Canonical.ts"
import { ChatClient } from "./ChatClient.ts"
import { call, followByClient, followDurably, request } from "./EventClients.ts"
import type { Nodes } from "./Nodes.ts"
import type { Story } from "./Story.ts"

/** Chooses by a seed and the names of what is chosen, so that no choice depends on another. */
export const choice =
  (seed: string) =>
  <A>(from: readonly [A, ...ReadonlyArray<A>], ...names: ReadonlyArray<string | number>): A =>
    from[Number.parseInt(hash("sha256", [seed, ...names].join(" "), "hex").slice(0, 8), 16) % from.length]!

export type Choose = ReturnType<typeof choice>

/** No wait comes near it, also on a busy machine. */
const longest = "8 minutes"

/** Fails where a wait has no end. */
export const ends = <A, E, R>(what: () => string, wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.timeoutFailCause(Effect.disconnect(wait), {
    duration: longest,
    onTimeout: () => Cause.die(new Error(`There was no end of the wait for ${what()}`))
  })

const kinds = ["echo", "echo", "echo", "long", "long", "ask", "approve", "fail", "hang", "drop"] as const

/** What happens in a turn. */
interface Plan {
  readonly key: string
  /** Unique among all sessions, so that the platform's record shows what it has received. */
  readonly text: string
  readonly kind: (typeof kinds)[number]
  /** Who sends the message: AG-UI first, all at once, or one of the others, without AG-UI. */
  readonly senders: "agUi" | "all" | "http" | "ws" | "own"
  /** Who answers the agent. */
  readonly answers: "agUi" | "http" | "ws" | "own"
  readonly stops: "agUi" | "chat" | "own"
}

const planOf = (choose: Choose, session: number, number: number, isLast: boolean): Plan => {
  const draw = <A>(name: string, ...from: [A, ...Array<A>]): A => choose(from, session, number, name)
  const kind = isLast ? "echo" : draw("kind", ...kinds)
  // AG-UI joins a thread by a run of its own.
  const senders = number === 0 || isLast ? "agUi" : draw("senders", "agUi", "agUi", "all", "http", "ws", "own")
  const tag = `${session}-${number}`
  const texts = { echo: `some words ${tag}`, long: `/long ${draw("length", 5, 20, 40)} ${tag}` }
  const text = kind === "echo" || kind === "long" ? texts[kind] : `/${kind} ${tag}`
  const chats: ReadonlyArray<Plan["answers"]> = kind === "ask" ? [] : ["http", "ws"]
  const agUi = senders === "agUi" ? (["agUi"] as const) : []
  return {
    ...{ key: `m-${number}`, kind, senders },
    text: kind === "drop" ? `/drop 1011 ${tag}` : text,
    answers: draw<Plan["answers"]>("answers", "own", ...chats, ...agUi),
    stops: draw<Plan["stops"]>("stops", "chat", "own", ...agUi)
  }
}

export class Talk {
  /** The messages that were sent, by the id that the user's client gave. */
  readonly sent = new Map<string, string>()
  /** The turns that the service has named to the client of this package. */
  private readonly accepted = new Map<string, string | undefined>()

  private constructor(
    private readonly nodes: Nodes,
    private readonly choose: Choose,
    readonly index: number,
    readonly sessionId: string,
    private readonly headers: Readonly<Record<string, string>>,
    private readonly sessions: Sessions,
    private readonly agUi: AgUiClient,
    private readonly chats: Readonly<Record<"http" | "ws", ChatClient>>,
    private readonly own: Story,
    private readonly durable: Story
  ) {}

  /** Creates a session, and opens the clients until the scope closes. */
  static open(
    nodes: Nodes,
    choose: Choose,
    index: number,
    token: string,
    sessions: Sessions,
    onEvent: Changes
  ): Effect.Effect<Talk, never, Scope.Scope> {
    return Effect.gen(function* () {
      const headers = { authorization: `Bearer ${token}` }
      const { id } = yield* call(nodes, "create", () => sessions.create("echo"))
      const chats = {
        http: yield* ChatClient.open(nodes, id, "http", token),
        ws: yield* ChatClient.open(nodes, id, "ws", token)
      }
      const agUi = new AgUiClient(nodes, id, headers)
      const own = yield* followByClient(sessions, id)
      const live = index % 2 === 0 ? "sse" : "long-poll"
      const durable = yield* followDurably(nodes, id, headers, live, onEvent)
      return new Talk(nodes, choose, index, id, headers, sessions, agUi, chats, own, durable)
    })
  }

  /** The newest event that the client of the Durable Streams protocol has. */
  get seq(): number {
    return this.durable.seq
  }

  /** One turn, which ends when each client has its end. Then all that take part have the same. */
  turn(number: number, isLast = false): Effect.Effect<void> {
    const plan = planOf(this.choose, this.index, number, isLast)
    const { key, text } = plan
    this.sent.set(key, text)
    const all = Effect.all(
      [
        this.runAgUi(plan),
        this.followChat("http", plan, number),
        this.followChat("ws", plan, number),
        this.runOwn(plan),
        this.stop(plan)
      ],
      { concurrency: "unbounded" }
    )
    return Effect.gen(this, function* () {
      const [isJoined] = yield* all
      for (const story of [this.durable, this.own]) yield* story.until(() => story.hasEnded(key))
      this.compare(isJoined)
    }).pipe(effect => ends(() => `${JSON.stringify(plan)} of session ${this.index}`, effect))
  }

  /** Compares what all clients have with each other and with the conversation that the service has. */
  readonly judge = Effect.suspend(() => {
    const path = `/api/v1/sessions/${this.sessionId}/conversation`
    return Effect.map(request(this.nodes, path, { headers: this.headers }), text => {
      const conversation: Conversation = JSON.parse(text)
      this.compare(true)
      assert.strictEqual(Canonical.textOf(Canonical.ofConversation(conversation)), this.expected)
      return { turns: conversation.messages.length / 2, runs: this.agUi.outcomes.size }
    })
  })

  /**
   * The messages that were not carried out once, with their turns. `record` are the turns of each message that the platform
   * has received, which may be none if the service was killed before it sent the message.
   */
  lost(record: ReadonlyMap<string, ReadonlyArray<string>>): ReadonlyArray<string> {
    const { messages } = this.durable.conversation
    return [...this.sent].flatMap(([key, text]) => {
      const turns = messages.flatMap(message =>
        message.role === "user" && message.text === text ? [message.turnId] : []
      )
      const [turnId] = turns
      const isAccepted = !this.accepted.has(key) || this.accepted.get(key) === turnId
      const received = record.get(text) ?? []
      const isWhole = this.durable.answerTo(key)?.status === "completed"
      const isRight =
        received.every(each => each === turnId) && received.length <= 1 && (received.length > 0 || !isWhole)
      return turns.length === 1 && isAccepted && isRight ? [] : [`${text}: turns ${turns}, received as ${received}`]
    })
  }

  private get expected(): string {
    return Canonical.textOf(Canonical.ofConversation(this.durable.conversation))
  }

  private compare(withAgUi: boolean): void {
    const { agUi, chats, durable, expected, own } = this
    const where = `session ${this.index}`
    assert.strictEqual(Canonical.textOf(Canonical.ofConversation(own.conversation)), expected, `the client of ${where}`)
    for (const kind of ["http", "ws"] as const) {
      assert.strictEqual(
        Canonical.textOf(Canonical.ofChat(chats[kind].messages)),
        expected,
        `the ${kind} chat of ${where}`
      )
    }
    if (!withAgUi) return
    // A turn that another client has started has no run, whose end says how the turn ended.
    const known = Canonical.ofConversation(durable.conversation).map((turn, at) =>
      agUi.outcomes.has(`m-${at}`) ? turn : { ...turn, agent: { ...turn.agent, outcome: "" } }
    )
    assert.strictEqual(
      Canonical.textOf(Canonical.ofAgUi(agUi.messages, agUi.outcomes)),
      Canonical.textOf(known),
      `AG-UI of ${where}`
    )
  }

  /** Waits until the message of a turn was accepted. */
  private accept(key: string): Effect.Effect<void> {
    return this.durable.until(() => this.durable.turnOf(key) !== undefined)
  }

  private decided(key: string): Effect.Effect<void> {
    return this.durable.until(() => this.durable.isDecided(key))
  }

  /** Returns whether AG-UI has a run of the turn. */
  private runAgUi({ answers, key, kind, senders, text }: Plan): Effect.Effect<boolean> {
    if (senders !== "agUi" && senders !== "all") return Effect.succeed(false)
    const { agUi } = this
    return Effect.gen(this, function* () {
      let end: End = yield* agUi.say(key, text)
      // Another client was first: there is no such run.
      if (end.is === "refused" && senders === "all") return false
      while (end.is === "asked") {
        if (answers === "agUi") end = yield* agUi.answer(key, kind === "ask" ? "red" : { approved: true })
        else {
          yield* this.decided(key)
          end = yield* agUi.join(key)
        }
        // The turn ended by a failure before the answer.
        if (end.is === "refused") end = yield* agUi.join(key)
      }
      if (end.is === "refused") return yield* Effect.dieMessage(end.error)
      return true
    })
  }

  private followChat(kind: "http" | "ws", plan: Plan, number: number): Effect.Effect<void> {
    const { answers, key, senders, text } = plan
    const isSender = senders === kind || senders === "all"
    const draw = (name: string) => this.choose([true, false], this.index, number, kind, name)
    const follow = this.chats[kind].follow({
      ...{ key, text, sends: isSender || draw("sends") },
      again: attempt => this.choose(["resume", "send last", "send user's"], this.index, number, kind, "again", attempt),
      ...(answers === kind ? { approval: draw("approves") } : {}),
      decided: this.decided(key)
    })
    return isSender ? follow : Effect.zipRight(this.accept(key), follow)
  }

  private runOwn({ answers, key, kind, senders, text }: Plan): Effect.Effect<void> {
    const { durable, nodes, sessionId, sessions } = this
    return Effect.gen(this, function* () {
      if (senders === "own" || senders === "all") {
        const { turnId } = yield* call(nodes, `send ${key} of ${sessionId}`, () =>
          sessions.send(sessionId, text, { clientMessageId: key })
        )
        this.accepted.set(key, turnId)
      }
      if (answers !== "own" || (kind !== "ask" && kind !== "approve")) return
      yield* durable.until(() => durable.hasEnded(key) || durable.requestIn(key) !== undefined)
      const asked = durable.requestIn(key)
      if (asked === undefined) return
      const answer = kind === "ask" ? "blue" : true
      const clientMessageId = `answer to ${key}`
      const answered = call(nodes, `answer ${key} of ${sessionId}`, () =>
        sessions.answer(sessionId, asked.requestId, answer, { clientMessageId })
      )
      // The turn may end by a failure before the answer, which is refused then.
      yield* Effect.raceFirst(answered, this.decided(key))
    })
  }

  /** Stops a turn that would not end. */
  private stop({ key, kind, stops }: Plan): Effect.Effect<void> {
    if (kind !== "hang") return Effect.void
    const { chats, durable, headers, nodes, sessionId, sessions } = this
    return Effect.gen(this, function* () {
      yield* durable.until(() => durable.hasEnded(key) || (durable.answerTo(key)?.parts.length ?? 0) > 0)
      const turnId = durable.turnOf(key)!
      const run = `/api/v1/ag-ui/echo/${sessionId}/runs/run-${key}`
      const stopped = {
        agUi: request(nodes, run, { method: "DELETE", headers }),
        chat: chats.http.stop,
        own: call(nodes, `interrupt ${key} of ${sessionId}`, () => sessions.interrupt(sessionId, { turnId }))
      }[stops]
      const hasEnded = durable.until(() => durable.hasEnded(key))
      yield* Effect.raceFirst(Effect.zipRight(stopped, hasEnded), hasEnded)
    })
  }
}
