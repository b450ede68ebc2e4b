/** The conversations of sessions for agents that keep none: the projection, as it is stored. */
import { Effect, Layer } from "effect"
import { turnOf } from "../../base/Time/PacedWork.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { HistoryUnavailable, SessionHistory } from "../../Upstream/AgUiAgent/SessionHistory.ts"
import * as Conversations from "../Conversations.ts"
import { SessionEvents } from "../SessionEvents.ts"
import { keyOf } from "../Sessions/Session/SessionRecords.ts"

const make = Effect.gen(function* () {
  const conversations = yield* Conversations.Conversations
  const events = yield* SessionEvents
  return SessionHistory.of({
    read: (tenant, id) =>
      Effect.gen(function* () {
        const history = yield* Effect.flatten(events.find(keyOf(tenant, id)))
        const { text } = yield* conversations.read({ ...history, session: { id, tenant } })
        yield* turnOf(text.length)
        return JSON.parse(text) as Conversation
      }).pipe(
        Effect.catchAll(() => new HistoryUnavailable({ message: "The conversation of the session cannot be read now" }))
      )
  })
})

/** Reads conversations for agents. */
export const layer: Layer.Layer<SessionHistory, never, SessionEvents> = Layer.provide(
  Layer.effect(SessionHistory, make),
  Conversations.layer
)
