/**
 * Hosts that mount the store and the gateway over one PostgreSQL database, as an application does: by one layer each.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpApi from "@effect/platform/HttpApi"
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Option, Redacted, Scope, Stream } from "effect"
import * as Client from "../src/exports/clientEffect.ts"
import { Gateway } from "../src/exports/gateway.ts"
import { Causeway, DrainingSignal, GatewayGroup, KvGroup, NodeServer } from "../src/exports/index.ts"
import { postgres } from "../src/exports/postgres.ts"
import { UpstreamClients } from "../src/exports/upstream.ts"
import * as Simulator from "../src/Simulator/Simulator.ts"
import { portOf } from "./Harness.ts"
import { createDatabase } from "./postgres/Databases.ts"
import { reasonToSkip } from "./postgres/Server.ts"

/** An application over a database, until its scope closes. */
const host = (url: string, platformUrl: string) =>
  Causeway.layerEdge({
    api: HttpApi.make("desk").add(KvGroup).add(GatewayGroup),
    store: postgres({ url: Redacted.make(url), lease: "1 minute" }),
    identity: () => Effect.succeed({ access: "write", actor: "anna", tenant: "acme" }),
    gateway: Gateway.layer(),
    upstream: UpstreamClients.layer({
      agentPlatform: { url: Option.some(platformUrl), apiKey: Option.none() },
      inference: { url: platformUrl, apiKey: Option.none() }
    }),
    server: { host: "127.0.0.1", port: 0, gracePeriod: "1 second" }
  }).pipe(
    Layer.provide([DrainingSignal.layer, FetchHttpClient.layer, Logger.remove(Logger.defaultLogger)]),
    Layer.build,
    Effect.map(services => `http://127.0.0.1:${portOf(Context.get(services, NodeServer.NodeServer))}`)
  )

/** Sends a message, and waits for the end of its turn. Returns the numbers of all events of the session. */
const converse = (sessions: Client.SessionsService, id: string, content: string) =>
  Effect.gen(function* () {
    const { turnId } = yield* sessions.send(id, content)
    const updates = yield* sessions.subscribe(id).pipe(
      Stream.takeUntil(
        update => update.type === "event" && update.event.type === "turn_completed" && update.event.turnId === turnId
      ),
      Stream.runCollect
    )
    return [...updates].flatMap(update => (update.type === "event" ? [update.event.seq] : []))
  })

describe.skipIf(reasonToSkip !== undefined)(`hosts over one PostgreSQL ${reasonToSkip ?? ""}`, () => {
  it.scopedLive("share entries and changes, and a session continues in another one with its history", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const { platformUrl } = yield* Simulator.make({ seed: 1 })
      const first = yield* Scope.make()
      const one = yield* Scope.extend(host(url, platformUrl), first)
      const other = yield* host(url, platformUrl)

      const writer = yield* Client.make({ baseUrl: one, token: "" })
      const reader = yield* Client.make({ baseUrl: other, token: "" })
      yield* writer.set("tenant:acme/x", "k", 1)
      expect(Option.getOrThrow(yield* reader.get("tenant:acme/x", "k"))).toMatchObject({ value: 1, updatedBy: "anna" })

      const sessions = yield* Client.makeSessions({ baseUrl: one })
      const { id } = yield* sessions.create("echo")
      const before = yield* converse(sessions, id, "hello")
      expect(before).toEqual(before.map((_, index) => index + 1))
      yield* Scope.close(first, Exit.void)

      const after = yield* converse(yield* Client.makeSessions({ baseUrl: other }), id, "hello again")
      expect(after.slice(0, before.length)).toEqual(before)
      expect(after).toEqual(after.map((_, index) => index + 1))
      expect(after.length).toBeGreaterThan(before.length)
    })
  )
})
