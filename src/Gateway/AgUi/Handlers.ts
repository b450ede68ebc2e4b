/** Serves AG-UI over the sessions: threads are sessions with a name, and runs are turns. */
import { Effect, Layer, Option } from "effect"
import { continuingHeader } from "../../AgUi/Protocol.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { NotFound } from "../../Http/ApiError.ts"
import * as Reply from "../../Http/Reply.ts"
import { type Caller, runReceipt } from "../Sessions.ts"
import { asCaller } from "../Streams/Caller.ts"
import { waitingIn } from "../Streams/Inquiries.ts"
import * as Turns from "../Streams/Turns.ts"
import { AgUi } from "./Endpoints.ts"
import { planOf } from "./Plan.ts"
import { encodingOf } from "./RunStream.ts"
import { answerKey } from "./Runs.ts"

const headers = { "cache-control": "no-store", "x-accel-buffering": "no", [continuingHeader]: "true" }

const unknown = (what: "run" | "thread", name: string) =>
  new NotFound({ error: `There is no ${what} ${JSON.stringify(name)}` })

const make = Effect.gen(function* () {
  const turns = yield* Turns.make("ag_ui")

  /** The keys of the requests that wait in a conversation and were answered. */
  const answered = (caller: Pick<Caller, "tenant">, sessionId: string, conversation: Conversation) =>
    turns.given(
      caller,
      sessionId,
      waitingIn(conversation).map(request => answerKey(conversation, request))
    )

  return AgUi.of({
    run: ({ incoming, path: { agentType }, payload: input }) =>
      asCaller(incoming, caller =>
        Effect.gen(function* () {
          const { messages, runId, threadId } = input
          const submitted = turns.submit(caller, { id: threadId, agentType }, (conversation, sessionId) =>
            Effect.gen(function* () {
              if (sessionId === undefined) return planOf(input, { conversation, answered: new Set(), run: undefined })
              const run = yield* turns.receipt(caller, sessionId, runReceipt(runId))
              return planOf(input, { conversation, answered: yield* answered(caller, sessionId, conversation), run })
            })
          )
          const { sessionId, target } = yield* submitted
          return yield* turns.stream(incoming, sessionId, headers, (conversation, subscription) =>
            Effect.map(answered(caller, sessionId, conversation), known =>
              encodingOf(
                { threadId, runId, turnId: target.turnId, messages, answered: known },
                conversation,
                turns.reread(subscription)
              )
            )
          )
        })
      ),
    stop: ({ incoming, path: { agentType, runId, threadId } }) =>
      asCaller(incoming, caller =>
        Effect.gen(function* () {
          const found = yield* turns.find(caller, { id: threadId })
          if (Option.isNone(found)) return yield* unknown("thread", threadId)
          const sessionId = found.value
          const run = turns.receipt(caller, sessionId, runReceipt(runId))
          const receipt = yield* turns.read(caller, { id: threadId, agentType }, sessionId, () => run)
          const turnId = receipt?.turnId
          if (turnId == null) return yield* unknown("run", runId)
          yield* turns.interrupt(caller, sessionId, turnId)
          return Reply.empty(204)
        })
      )
  })
})

/** Serves AG-UI until the scope closes. */
export const layer: Layer.Layer<AgUi, never, Turns.Needed> = Layer.scoped(AgUi, make)
