/** Serves chats to clients of the AI SDK. */
import { Effect, Layer, Option } from "effect"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import type { Authentication } from "../Authentication.ts"
import type { Settings } from "../Clients.ts"
import { asCaller } from "../Streams/Caller.ts"
import * as Turns from "../Streams/Turns.ts"
import { Chats, type Followed } from "./Chats.ts"
import { AiSdk } from "./Endpoints.ts"
import { headers, serverSentEvents } from "./EventStream.ts"
import * as Socket from "./Socket.ts"

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const chats = new Chats(yield* Turns.make("ai_sdk"))
    const connect = yield* Socket.make(settings, chats)
    const writing = chats.writing(serverSentEvents)

    const stream = (incoming: Incoming, found: Effect.Effect<Followed, Turns.Failed>) =>
      chats.turns.stream(incoming, found, headers, writing)

    return AiSdk.of({
      send: ({ incoming, path: { agentType }, payload: { id, ...submission } }) =>
        asCaller(incoming, caller => stream(incoming, chats.submit(caller, { agentType, id }, submission))),
      resume: ({ incoming, path }) =>
        asCaller(incoming, caller =>
          Effect.gen(function* () {
            const found = yield* chats.resume(caller, path)
            return Option.isNone(found) ? Reply.empty(204) : yield* stream(incoming, Effect.succeed(found.value))
          })
        ),
      stop: ({ incoming, path }) => asCaller(incoming, caller => Effect.as(chats.stop(caller, path), Reply.empty(204))),
      messages: ({ incoming, path }) =>
        asCaller(incoming, caller =>
          Effect.map(chats.messages(caller, path), messages => Reply.json(JSON.stringify(messages)))
        ),
      connect: ({ headers, incoming, path: { agentType } }) =>
        Effect.map(connect({ headers, incoming }, agentType), Reply.webSocket)
    })
  })

/** Serves chats until the scope closes. */
export const layer = (settings: Settings): Layer.Layer<AiSdk, never, Turns.Needed | Authentication> =>
  Layer.scoped(AiSdk, make(settings))
