/**
 * Three gateways that share one PostgreSQL, of which one is paused for longer than its lease and continued, and two are
 * killed at once, while clients send messages to all sessions through all of them.
 */
import { assert, layer } from "@effect/vitest"
import { Cause, Deferred, Effect, Random, type Scope } from "effect"
import type { Event } from "../src/Gateway/Protocol.ts"
import { type Client, createSession } from "./Gateway/Socket/Fixture.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import { times } from "./Scale.ts"
import * as Environment from "./service/Environment.ts"
import * as Gateways from "./service/Gateways.ts"

const seed = process.env.NODES_SEED ?? "nodes"

/** No wait comes near it, also on a busy machine. */
const longest = "5 minutes"

/** Fails where a wait has no end, with what was waited for and how far that was. */
const ends = <A, E, R>(what: () => string, wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.timeoutFailCause(Effect.disconnect(wait), {
    duration: longest,
    onTimeout: () => Cause.die(new Error(`There was no end of the wait for ${what()}`))
  })

/** Sessions, and the messages of each in a round. One half of them have an id of the client, and are repeated. */
const sessionCount = 6
const messages = 12

type Gateway = Effect.Effect.Success<Effect.Effect.Success<ReturnType<typeof Gateways.make>>["start"]>

interface Node extends Gateway {
  /** Fulfilled when it is paused or killed: what it was asked may have been done or not. */
  readonly gone: Deferred.Deferred<void>
}

/** The nodes that clients go to, and how far they have come. */
class Run {
  readonly sent: ReadonlyArray<Array<Gateways.Message>> = Array.from({ length: sessionCount }, () => [])
  /** The outcome of the last attempt in each session. */
  readonly attempts: Array<string> = Array.from({ length: sessionCount }, () => "none")
  nodes: ReadonlyArray<Node> = []

  /** How far the sessions are. */
  describe(): string {
    return this.sent.map(({ length }, index) => `session ${index}: ${length} (${this.attempts[index]})`).join(", ")
  }

  /** Waits until each session has had so many messages. */
  awaitSent(count: number): Effect.Effect<void> {
    return ends(
      () => `${count} messages in each session: ${this.describe()}`,
      Effect.repeat(Effect.sleep("10 millis"), { until: () => this.sent.every(({ length }) => length >= count) })
    )
  }
}

const started = (gateway: Gateway): Effect.Effect<Node> =>
  Effect.map(Deferred.make<void>(), gone => ({ ...gateway, gone }))

/** Sends messages to one session, one after the other, each through any node. */
const talk = (run: Run, sessionId: string, index: number, total: number, random: Random.Random) =>
  Effect.gen(function* () {
    const clients = new Map<Node, Client>()
    const clientOf = (node: Node): Effect.Effect<Client, never, Scope.Scope> => {
      const known = clients.get(node)
      if (known?.isOpen() === true) return Effect.succeed(known)
      return Effect.tap(node.client, client => Effect.sync(() => clients.set(node, client)))
    }
    const sent = run.sent[index]!
    while (sent.length < total) {
      const content = `message ${sent.length} of session ${index}`
      const clientMessageId = sent.length % 2 === 0 ? content : undefined
      const id = clientMessageId === undefined ? {} : { clientMessageId }
      const attempt = Effect.gen(function* () {
        const node = run.nodes[yield* random.nextIntBetween(0, run.nodes.length)]!
        const asking = Effect.flatMap(clientOf(node), client =>
          client.ask({ type: "send_message", sessionId, content, ...id })
        )
        const unknown = Effect.as(Deferred.await(node.gone), undefined)
        return yield* Effect.raceFirst(
          // A node that is killed refuses connections, and closes those that there are.
          Effect.catchAllDefect(asking, () => Effect.succeed(undefined)),
          unknown
        )
      })
      run.attempts[index] = "under way"
      const answer = yield* attempt
      run.attempts[index] = answer === undefined ? "without an answer" : JSON.stringify(answer)
      if (answer?.type === "accepted") sent.push({ content, turnId: answer.turnId })
      // Without an id it is not repeated, whatever the answer.
      else if (clientMessageId === undefined) sent.push({ content })
      else yield* Effect.sleep("20 millis")
    }
  })

/** Follows sessions from their beginning, and resumes where it was if its connection is closed, at the node of then. */
const follow = (nodeOf: () => Node, sessions: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const seen = new Map(sessions.map(sessionId => [sessionId, [] as Array<Event>]))
    let client: Client | undefined
    const eventsOf = (sessionId: string) => [...seen.get(sessionId)!, ...(client?.events(sessionId) ?? [])]
    const subscribe = Effect.gen(function* () {
      const next = yield* Effect.suspend(() => nodeOf().client)
      const resumed = sessions.map(sessionId => [sessionId, eventsOf(sessionId)] as const)
      for (const [sessionId, events] of resumed) seen.set(sessionId, events)
      client = next
      for (const [sessionId, { length }] of resumed) {
        yield* Effect.repeat(next.ask({ type: "subscribe", sessionId, afterSeq: length }), {
          until: answer => answer.type === "subscribed"
        })
      }
      yield* next.closed
    })
    yield* Effect.forkScoped(Effect.forever(Effect.delay(Effect.ignore(Effect.sandbox(subscribe)), "20 millis")))
    return eventsOf
  })

/** The whole history of a session once all turns have ended. */
const settled = (client: Client, sessionId: string) =>
  Effect.gen(function* () {
    const open = () => {
      const events = client.events(sessionId)
      return events.filter(Gateways.isStart).filter(({ turnId }) => Gateways.endsOf(events, turnId).length === 0)
    }
    yield* ends(() => `the history of session ${sessionId}`, Gateways.follow(client, sessionId))
    yield* ends(
      () => `the ends of turns of session ${sessionId}: ${JSON.stringify(open())}`,
      Effect.repeat(Effect.sleep("20 millis"), { until: () => open().length === 0 })
    )
    return client.events(sessionId)
  })

layer(Environment.layer, { excludeTestServices: true })(`gateways that fail ${reasonToSkip ?? ""}`, it => {
  it.scoped.skipIf(reasonToSkip !== undefined)(
    "carry each message out once at most and in order, and lose none that was accepted",
    () =>
      Effect.gen(function* () {
        const random = Random.make(seed)
        const { simulator, start } = yield* Gateways.make({ isLinked: true })
        const startNodes = (count: number) =>
          ends(
            () => `the start of ${count} nodes`,
            Effect.all(
              Array.from({ length: count }, () => Effect.flatMap(start, started)),
              { concurrency: "unbounded" }
            )
          )
        const run = new Run()
        run.nodes = yield* startNodes(3)
        let stays = run.nodes[0]!
        const creating = Effect.forEach(Array.from({ length: sessionCount }), (_, index) =>
          Effect.gen(function* () {
            const client = yield* run.nodes[index % 3]!.client
            const sessionId = yield* createSession(client)
            // It belongs to this node from then on.
            yield* client.get("session", { type: "start_session", sessionId })
            return sessionId
          })
        )
        const sessions = yield* ends(() => "the start of the sessions", creating)
        const witnessed = yield* follow(() => stays, sessions)
        for (let round = 1; round <= times(1); round++) {
          const before = (round - 1) * messages
          // Those that others were taken over by are to fail, too.
          stays = run.nodes[yield* random.nextIntBetween(0, run.nodes.length)]!
          const talkers = yield* Effect.forEach(sessions, (sessionId, index) =>
            Effect.fork(talk(run, sessionId, index, round * messages, random))
          )
          yield* run.awaitSent(before + messages / 4)
          const others = run.nodes.filter(node => node !== stays)
          const paused = others[yield* random.nextIntBetween(0, 2)]!
          paused.signal("SIGSTOP")
          run.nodes = run.nodes.filter(node => node !== paused)
          yield* Deferred.succeed(paused.gone, undefined)
          // Its sessions as well, which others have to take over for that.
          yield* run.awaitSent(before + messages / 2)
          paused.signal("SIGCONT")
          const continued = yield* started(paused)
          run.nodes = [...run.nodes, continued]
          yield* run.awaitSent(before + (3 * messages) / 4)
          const killed = run.nodes.filter(node => node !== stays)
          run.nodes = [stays]
          for (const node of killed) node.signal("SIGKILL")
          yield* Effect.forEach(killed, node => Deferred.succeed(node.gone, undefined))
          yield* ends(
            () => `the last message of each session: ${run.describe()}`,
            Effect.forEach(talkers, talker => talker)
          )
          run.nodes = [stays, ...(yield* startNodes(2))]
        }
        const late = yield* ends(() => "a connection to a node that has just started", run.nodes[1]!.client)
        let turns = 0
        for (const [index, sessionId] of sessions.entries()) {
          const events = yield* settled(late, sessionId)
          Gateways.checkHistory(events, run.sent[index]!)
          turns += events.filter(Gateways.isStart).length
          // All subscribers have the same events, each once and in order.
          yield* ends(
            () =>
              `${events.length} events of session ${index}, of which a subscriber has ${witnessed(sessionId).length}`,
            Effect.repeat(Effect.sleep("20 millis"), { until: () => witnessed(sessionId).length >= events.length })
          )
          assert.deepStrictEqual(witnessed(sessionId).slice(0, events.length), events)
        }
        assert.isAtMost((yield* simulator.state).frames.message, turns)
      }).pipe(Effect.tapErrorCause(() => Effect.sync(() => console.error(`NODES_SEED=${seed}`))))
  )
})
