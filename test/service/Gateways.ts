/** Gateways that share one PostgreSQL and one platform, as processes or within this one. */
import { assert } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { type Event, type EventOf, turnEnds } from "../../src/Gateway/Protocol.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { type Client, completeTurn, connect, createSession } from "../Gateway/Socket/Fixture.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import { createDatabase } from "../postgres/Databases.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import * as InProcess from "./InProcess.ts"
import * as Service from "./Service.ts"

/** By which the nodes know each other. */
export const nodeSecret = "a secret that only the nodes have"

export interface Options {
  /** Whether nodes send each other requests. */
  readonly isLinked?: boolean
  readonly env?: Readonly<Record<string, string>>
}

/** Gateways over one database and one platform, each with a directory of its own. */
export const make = ({ env = {}, isLinked = false }: Options = {}) =>
  Effect.gen(function* () {
    const url = yield* Effect.promise(() => createDatabase())
    const simulator = yield* Simulator.make({ seed: "shared", pace: "1 millis" })
    const environment = (own: Readonly<Record<string, string>>) => ({
      STORE_URL: url,
      // A busy machine can keep a process from renewing it for a second.
      SESSION_LEASE: "3 seconds",
      AGENT_PLATFORM_URL: simulator.platformUrl,
      GATEWAY_JWT_SECRET: secret,
      LOG_LEVEL: "info",
      ...(isLinked ? { NODE_ADDRESS: "127.0.0.1:0", NODE_SECRET: nodeSecret } : {}),
      ...env,
      ...own
    })
    const withClients = <S extends { readonly url: string }>(service: S) => {
      const clientOf = (sub: string, tenant = "acme"): Effect.Effect<Client, never, Scope.Scope> =>
        Effect.flatMap(token(tenant, sub), bearer =>
          Effect.orDie(
            connect(`${service.url.replace("http", "ws")}/ws`, { headers: { authorization: `Bearer ${bearer}` } })
          )
        )
      return { ...service, clientOf, client: clientOf("tester") }
    }
    const startWith = (own: Readonly<Record<string, string>> = {}) =>
      Effect.flatMap(temporaryDirectory, directory =>
        Effect.map(Service.start({ directory, env: environment(own) }), withClients)
      )
    /** One within this process. */
    const serveWith = (own: Readonly<Record<string, string>> = {}) =>
      Effect.map(InProcess.serve({ KV_API_KEY: Service.key, ...environment(own) }), withClients)
    return { simulator, start: startWith(), startWith, serve: serveWith(), serveWith, url }
  })

/** Subscribes from the first event on as soon as the node has the session, and waits until all events have come. */
export const follow = (client: Client, sessionId: string) =>
  Effect.gen(function* () {
    const answer = yield* Effect.repeat(
      Effect.delay(client.ask({ type: "subscribe", sessionId, afterSeq: 0 }), "50 millis"),
      { until: answer => answer.type !== "error" || !answer.error.retryable }
    )
    if (answer.type !== "subscribed") return yield* Effect.dieMessage(JSON.stringify(answer))
    if (answer.headSeq > 0) yield* client.untilEvent(sessionId, ({ seq }) => seq === answer.headSeq)
    return client.events(sessionId)
  })

export const turnOf = (event: Event) => ("turnId" in event ? event.turnId : undefined)

const ends: ReadonlySet<string> = new Set(turnEnds)

/** The ends of a turn. */
export const endsOf = (events: ReadonlyArray<Event>, turnId: string | undefined) =>
  events.filter(event => ends.has(event.type) && turnOf(event) === turnId).map(({ type }) => type)

export const isStart = (event: Event): event is EventOf<"turn_started"> => event.type === "turn_started"

/**
 * Turns that ended because their message was not sent to the agent. The client was notified, and may have sent it
 * again.
 */
const unsent: ReadonlySet<string> = new Set(["not_sent", "not_recorded"])

/** The outcome of a message, as far as its client knows. */
export interface Message {
  readonly content: string
  /** Of one that was accepted. */
  readonly turnId?: string | undefined
}

/** Requires that events are numbered from 1 on without a gap. */
export const isDense = (events: ReadonlyArray<Event>) =>
  assert.deepStrictEqual(
    events.map(({ seq }) => seq),
    events.map((_, index) => index + 1)
  )

/** Checks the history of a session against what a client knows that sent messages one after the other. */
export const checkHistory = (events: ReadonlyArray<Event>, sent: ReadonlyArray<Message>) => {
  isDense(events)
  const starts = events.filter(isStart)
  for (const { turnId } of starts) assert.lengthOf(endsOf(events, turnId), 1, turnId)
  const isSent = ({ turnId }: { readonly turnId: string }) =>
    !events.some(event => event.type === "turn_errored" && event.turnId === turnId && unsent.has(event.code))
  const carriedOut = starts.filter(isSent)
  for (const { content, turnId } of sent) {
    const turns = carriedOut.filter(start => start.content === content).map(start => start.turnId)
    if (turnId === undefined) assert.isAtMost(turns.length, 1, content)
    else assert.deepStrictEqual(turns, [turnId], content)
  }
  // Each was sent after the answer to the one before.
  const accepted = new Set(sent.flatMap(({ turnId }) => (turnId === undefined ? [] : [turnId])))
  assert.deepStrictEqual(
    starts.map(({ turnId }) => turnId).filter(turnId => accepted.has(turnId)),
    [...accepted]
  )
}

/** A session of a node, with one turn completed and one that does not end. */
export const begin = (client: Client) =>
  Effect.gen(function* () {
    const sessionId = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
    const completed = yield* completeTurn(client, sessionId, "one two three")
    const { turnId } = yield* client.get("accepted", { type: "send_message", sessionId, content: "/hang" })
    yield* client.untilEvent(sessionId, event => event.type === "turn_started" && turnOf(event) === turnId)
    return { sessionId, completed, open: turnId }
  })
