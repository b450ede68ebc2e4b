/** Serves chats to clients of the AI SDK. */
import { Effect, Layer, Option, type Scope } from "effect"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import type { Authentication } from "../Authentication.ts"
import type { Clients, Settings } from "../Clients.ts"
import type { Caller } from "../Sessions.ts"
import * as EventStreams from "../Streams/EventStreams.ts"
import { Chats, type Followed } from "./Chats.ts"
import { AiSdk } from "./Endpoints.ts"
import { encodingOf, headers } from "./EventStream.ts"
import * as Socket from "./Socket.ts"

/** The client of a request, which `GatewayAccess` has identified. */
const callerOf = ({ identity }: Incoming): Caller => ({ tenant: identity!.tenant!, actor: identity!.actor! })

/** With the client in log lines and spans. */
const asCaller =
  ({ actor, tenant }: Caller) =>
  <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.annotateLogs(work, { tenant, actor }).pipe(Effect.tap(Effect.annotateCurrentSpan("tenant", tenant)))

const make = (
  settings: Settings
): Effect.Effect<
  Effect.Effect.Success<typeof AiSdk>,
  never,
  Chats | Clients | Authentication | DrainingSignal | Scope.Scope
> =>
  Effect.gen(function* () {
    const chats = yield* Chats
    const streams = yield* EventStreams.make
    const connect = yield* Socket.make(settings)

    const stream = (incoming: Incoming, { sessionId, target }: Followed) => {
      const client = { caller: callerOf(incoming), expiresAt: incoming.identity?.expiresAt }
      const opened = streams.open(client, sessionId, subscription =>
        Effect.map(chats.begin(subscription, target), beginning => {
          return { after: beginning.after, maySkip: false, encoding: encodingOf(beginning) }
        })
      )
      return Effect.map(opened, made => Reply.written("text/event-stream", made, headers, made.release))
    }

    return AiSdk.of({
      send: ({ incoming, path: { agentType }, payload: { id, ...submission } }) => {
        const caller = callerOf(incoming)
        const submitted = chats.submit(caller, { agentType, id }, submission)
        return asCaller(caller)(Effect.flatMap(submitted, followed => stream(incoming, followed)))
      },
      resume: ({ incoming, path }) => {
        const caller = callerOf(incoming)
        const resumed = Effect.flatMap(
          chats.resume(caller, path),
          Option.match({
            onNone: () => Effect.succeed(Reply.empty(204)),
            onSome: followed => stream(incoming, followed)
          })
        )
        return asCaller(caller)(resumed)
      },
      stop: ({ incoming, path }) => {
        const caller = callerOf(incoming)
        return asCaller(caller)(Effect.as(chats.stop(caller, path), Reply.empty(204)))
      },
      messages: ({ incoming, path }) => {
        const caller = callerOf(incoming)
        const read = Effect.map(chats.messages(caller, path), messages => Reply.json(JSON.stringify(messages)))
        return asCaller(caller)(read)
      },
      connect: ({ headers, incoming, path: { agentType } }) =>
        Effect.map(connect({ headers, incoming }, agentType), Reply.webSocket)
    })
  })

/** Serves chats until the scope closes. */
export const layer = (
  settings: Settings
): Layer.Layer<AiSdk, never, Chats | Clients | Authentication | DrainingSignal> => Layer.scoped(AiSdk, make(settings))
