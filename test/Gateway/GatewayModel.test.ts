/**
 * Clients that subscribe, drop, resume, send and stop in any order, on a gateway that is stopped, killed and started
 * again, and a platform that loses connections and instances: whatever happens, what each client saw is a piece of one
 * history, and each turn has one end.
 */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, FastCheck as fc, Scope } from "effect"
import type { Event } from "../../src/Gateway/Protocol.ts"
import { turnEnds } from "../../src/Gateway/Protocol.ts"
import { times } from "../Scale.ts"
import { type Client, connect, createSession, make } from "./Socket/Fixture.ts"

const numRuns = times(12)

const sessionCount = 2
const clientCount = 3

/** What one client knows of one session, however often it connected. */
interface Seen {
  epoch: string | undefined
  /** Each list has no gap. A new list starts if the history was not recovered. */
  readonly pieces: Array<Array<Event>>
  isSubscribed: boolean
}

interface Member {
  client: Client | undefined
  scope: Scope.CloseableScope | undefined
  readonly seen: ReadonlyArray<Seen>
}

type Started = Effect.Effect.Success<Effect.Effect.Success<ReturnType<typeof make>>["start"]>

interface Real {
  readonly simulator: Effect.Effect.Success<ReturnType<typeof make>>["simulator"]
  readonly start: Effect.Effect<Started>
  gateway: Started
  readonly sessions: Array<string>
  readonly members: ReadonlyArray<Member>
  /** Turns that were accepted, by session, each with its message. */
  readonly turns: ReadonlyArray<Map<string, { readonly content: string; readonly clientMessageId: string }>>
  messages: number
}

type Operation =
  | { readonly op: "connect"; readonly who: number }
  | { readonly op: "drop"; readonly who: number }
  | {
      readonly op: "subscribe" | "unsubscribe" | "stop" | "start" | "interrupt"
      readonly who: number
      readonly session: number
    }
  | { readonly op: "send"; readonly who: number; readonly session: number; readonly content: string }
  | { readonly op: "restart" }
  | { readonly op: "kill" }
  | { readonly op: "reclaim" }
  | { readonly op: "disconnect" }

const leave = (member: Member) =>
  Effect.gen(function* () {
    if (member.scope !== undefined) yield* Scope.close(member.scope, Exit.void)
    member.client = undefined
    member.scope = undefined
    for (const seen of member.seen) seen.isSubscribed = false
  })

/** The client of a member, connected when it is not. */
const clientOf = (real: Real, member: Member) =>
  Effect.gen(function* () {
    if (member.client?.isOpen()) return member.client
    yield* leave(member)
    const scope = yield* Scope.make()
    const client = yield* Scope.extend(connect(real.gateway.url), scope)
    member.scope = scope
    member.client = client
    client.socket.on("message", data => {
      const frame = JSON.parse(data.toString("utf8")) as Event
      if (!("seq" in frame)) return
      const seen = member.seen[real.sessions.indexOf(frame.sessionId)]!
      seen.pieces.at(-1)!.push(frame)
    })
    return client
  })

const subscribe = (real: Real, member: Member, session: number) =>
  Effect.gen(function* () {
    const client = yield* clientOf(real, member)
    const seen = member.seen[session]!
    if (seen.isSubscribed) return
    const piece = seen.pieces.at(-1)!
    const afterSeq = piece.at(-1)?.seq ?? 0
    const answered = client.get("subscribed", {
      type: "subscribe",
      sessionId: real.sessions[session]!,
      afterSeq,
      ...(seen.epoch === undefined ? {} : { epoch: seen.epoch })
    })
    const { epoch, recovered } = yield* answered
    // Nothing is lost here, so a client that resumes continues from its position.
    expect({ recovered, epoch }).toEqual({ recovered: true, epoch: seen.epoch ?? epoch })
    seen.epoch = epoch
    seen.isSubscribed = true
  })

const perform = (real: Real, operation: Operation) =>
  Effect.gen(function* () {
    if (operation.op === "restart" || operation.op === "kill") {
      yield* operation.op === "kill" ? real.gateway.kill : real.gateway.stop
      yield* Effect.forEach(real.members, leave)
      real.gateway = yield* real.start
      return
    }
    if (operation.op === "reclaim") return yield* Effect.asVoid(real.simulator.reclaim())
    if (operation.op === "disconnect") return yield* Effect.ignore(real.simulator.disconnect())
    const member = real.members[operation.who]!
    if (operation.op === "drop") return yield* leave(member)
    const client = yield* clientOf(real, member)
    if (operation.op === "connect") return undefined
    const sessionId = real.sessions[operation.session]!
    switch (operation.op) {
      case "subscribe":
        return yield* subscribe(real, member, operation.session)
      case "unsubscribe":
        yield* client.ask({ type: "unsubscribe", sessionId })
        member.seen[operation.session]!.isSubscribed = false
        return
      case "start":
        return yield* Effect.asVoid(client.ask({ type: "start_session", sessionId }))
      case "stop":
        return yield* Effect.asVoid(client.ask({ type: "stop_session", sessionId }))
      case "interrupt":
        return yield* Effect.asVoid(client.ask({ type: "interrupt_turn", sessionId }))
      case "send": {
        const message = { content: operation.content, clientMessageId: `m-${real.messages++}` }
        const answer = yield* client.ask({ type: "send_message", sessionId, ...message })
        if (answer.type === "accepted") real.turns[operation.session]!.set(answer.turnId!, message)
      }
    }
  })

/** At no time has a session more than one instance. */
const checkInstances = (real: Real) =>
  Effect.map(real.simulator.state, ({ instances }) => {
    const tags = instances.map(({ environment }) => environment.SESSION)
    expect(new Set(tags).size, JSON.stringify(tags)).toBe(tags.length)
  })

const isContiguous = (events: ReadonlyArray<Event>): boolean =>
  events.every(({ seq }, index) => seq === events[0]!.seq + index)

/** After everything: one history for each session, of which each client saw a piece, and one end for each turn. */
const checkAll = (real: Real) =>
  Effect.gen(function* () {
    const auditor = yield* connect(real.gateway.url)
    let turns = 0
    for (const [index, sessionId] of real.sessions.entries()) {
      const { session } = yield* auditor.get("session", { type: "stop_session", sessionId })
      expect(session.state).toBe("inactive")
      const { headSeq } = yield* auditor.get("subscribed", { type: "subscribe", sessionId })
      if (headSeq > 0) yield* auditor.untilEvent(sessionId, ({ seq }) => seq === headSeq)
      const history = auditor.events(sessionId)
      expect(history.map(({ seq }) => seq)).toEqual(history.map((_, place) => place + 1))
      for (const { seen } of real.members) {
        for (const piece of seen[index]!.pieces) {
          expect(isContiguous(piece), JSON.stringify(piece.map(({ seq }) => seq))).toBe(true)
          expect(piece).toEqual(history.slice((piece[0]?.seq ?? 1) - 1, piece.at(-1)?.seq ?? 0))
        }
      }
      const ends = history.flatMap(event =>
        turnEnds.includes(event.type as never) && "turnId" in event ? [event.turnId!] : []
      )
      expect(new Set(ends).size).toBe(ends.length)
      const starts = history.flatMap(event => (event.type === "turn_started" ? [event] : []))
      expect(starts.map(({ turnId }) => turnId).sort()).toEqual([...ends].sort())
      for (const [turnId, message] of real.turns[index]!) {
        expect(starts.find(start => start.turnId === turnId)).toMatchObject(message)
        // Whatever has happened since, it is known to have been said.
        expect(yield* auditor.get("accepted", { type: "send_message", sessionId, ...message })).toMatchObject({
          turnId
        })
      }
      turns += starts.length
    }
    // Each message has reached the platform once at most.
    expect((yield* real.simulator.state).frames.message).toBeLessThanOrEqual(turns)
    yield* real.simulator.awaitState(({ instances }) => instances.length === 0)
  })

class Step implements fc.AsyncCommand<object, Real> {
  constructor(readonly operation: Operation) {}
  check(): boolean {
    return true
  }
  run(_model: object, real: Real): Promise<void> {
    return Effect.runPromise(Effect.zipRight(Effect.scoped(perform(real, this.operation)), checkInstances(real)))
  }
  toString(): string {
    return JSON.stringify(this.operation)
  }
}

const who = fc.nat(clientCount - 1)
const session = fc.nat(sessionCount - 1)
const content = fc.constantFrom("hello", "/hang", "/fail", "/drop", "/crash", "/long 300", "/ask", "/unknown")

const operations = [
  fc.record({ op: fc.constantFrom("connect", "drop"), who }),
  fc.record({ op: fc.constantFrom("subscribe", "unsubscribe", "stop", "start", "interrupt"), who, session }),
  fc.record({ op: fc.constant("subscribe"), who, session }),
  fc.record({ op: fc.constant("send"), who, session, content }),
  fc.record({ op: fc.constant("send"), who, session, content }),
  fc.record({ op: fc.constantFrom("restart", "kill", "reclaim", "disconnect") })
] as ReadonlyArray<fc.Arbitrary<Operation>>

describe("a gateway with random clients and a random platform", () => {
  it.live("loses and duplicates no event, ends each turn once, and gives no session two instances", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.commands(
            operations.map(arbitrary => arbitrary.map(operation => new Step(operation))),
            { maxCommands: 30, size: "max" }
          ),
          commands =>
            Effect.runPromise(
              Effect.scoped(
                Effect.gen(function* () {
                  const { simulator, start } = yield* make({ inference: false })
                  const scope = yield* Effect.scope
                  const begin = Effect.orDie(Scope.extend(start, scope))
                  const gateway = yield* begin
                  const founder = yield* connect(gateway.url)
                  const sessions = yield* Effect.forEach(Array.from({ length: sessionCount }), (_, index) =>
                    createSession(founder, { environment: { SESSION: `s${index}` } })
                  )
                  const real: Real = {
                    simulator,
                    start: begin,
                    gateway,
                    sessions,
                    members: Array.from({ length: clientCount }, () => ({
                      client: undefined,
                      scope: undefined,
                      seen: sessions.map(() => ({ epoch: undefined, pieces: [[]], isSubscribed: false }))
                    })),
                    turns: sessions.map(() => new Map()),
                    messages: 0
                  }
                  yield* Effect.promise(() => fc.asyncModelRun(() => ({ model: {}, real }), commands))
                  yield* checkAll(real)
                  yield* Effect.forEach(real.members, leave)
                })
              )
            )
        ),
        { numRuns, endOnFailure: true }
      )
    )
  )
})
