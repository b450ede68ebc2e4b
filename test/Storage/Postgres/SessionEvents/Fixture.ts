/** Nodes over one database, and what tests do with their session event logs. */
import { expect } from "@effect/vitest"
import { Context, Duration, Effect, Layer } from "effect"
import { type Append, SessionElsewhere, SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { SessionNodes } from "../../../../src/Gateway/SessionNodes.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import type * as PostgresSessionEvents from "../../../../src/Storage/Postgres/SessionEvents.ts"
import { nodeLayer, optionsOf } from "../../../postgres/Databases.ts"

export type Events = Context.Tag.Service<SessionEvents>

/** No lease ends during a test, however slow the machine is. */
const lasting = { lease: Duration.minutes(1) }

/** For what happens when a lease is renewed, or has ended. */
export const brief = { lease: Duration.seconds(1) }

/** A node over a database, whose lease lasts longer than a test unless it is given. */
export const node = (url: string, options: PostgresSessionEvents.Options = {}) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(nodeLayer(optionsOf(url), { ...lasting, ...options }))
    return {
      events: Context.get(context, SessionEvents),
      nodes: Context.get(context, SessionNodes),
      log: Context.get(context, ChangeLog)
    }
  })

export const append = (
  events: Events,
  session: string,
  after: number,
  texts: ReadonlyArray<string>,
  more: Partial<Append> = {}
) => events.append({ session, epoch: "e1", after, timestamp: 0, texts, recoveryState: null, ...more })

/** The texts of all events of a session. */
export const textsOf = (events: Events, session: string) =>
  Effect.map(Effect.flatten(events.read(session, 0, 1000)), page => page.events.map(({ text }) => text))

/** Requires that a call fails because another node has the session. */
export const isElsewhere = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(effect), error => expect(error).toBeInstanceOf(SessionElsewhere))
