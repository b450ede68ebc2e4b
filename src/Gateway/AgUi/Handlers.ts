/** Serves AG-UI over the sessions: threads are sessions with a name, and runs are turns. */
import { Effect, Layer, Option } from "effect"
import { continuingHeader } from "../../AgUi/Protocol.ts"
import { NotFound } from "../../Http/ApiError.ts"
import * as Reply from "../../Http/Reply.ts"
import { runReceipt } from "../Sessions.ts"
import { asCaller } from "../Streams/Caller.ts"
import type { Target } from "../Streams/Plan.ts"
import * as Turns from "../Streams/Turns.ts"
import { AgUi } from "./Endpoints.ts"
import { planOf } from "./Plan.ts"
import { encodingOf } from "./Runs.ts"

const headers = { "cache-control": "no-store", "x-accel-buffering": "no", [continuingHeader]: "true" }

const unknown = (what: "run" | "thread", name: string) =>
  new NotFound({ error: `There is no ${what} ${JSON.stringify(name)}` })

/** A run by its name alone. */
const runOf = (id: string) => ({ id, digest: "" })

const make = Effect.gen(function* () {
  const turns = yield* Turns.make("ag_ui")
  const { histories } = turns

  return AgUi.of({
    run: ({ incoming, path: { agentType }, payload: input }) =>
      asCaller(incoming, caller => {
        const { runId, threadId } = input
        const planning: Turns.Planning<Target> = (conversation, sessionId) =>
          sessionId === undefined
            ? Effect.succeed(planOf(input, { conversation, answered: new Set(), run: undefined }))
            : Effect.map(
                Effect.all({
                  answered: histories.answered(caller, sessionId, conversation),
                  run: histories.receipt(caller, sessionId, runReceipt(runId))
                }),
                known => planOf(input, { conversation, ...known })
              )
        const submitted = turns.submit({ ...caller, run: runOf(runId) }, { id: threadId, agentType }, input, planning)
        return turns.stream(incoming, submitted, headers, (conversation, followed, subscription) =>
          Effect.map(histories.answered(caller, followed.sessionId, conversation), answered =>
            encodingOf(input, followed, answered, conversation, histories.use(subscription, Effect.succeed))
          )
        )
      }),
    stop: ({ incoming, path: { agentType, runId, threadId } }) =>
      asCaller(incoming, caller =>
        Effect.gen(function* () {
          const stopped = yield* turns.stop({ ...caller, run: runOf(runId) }, { id: threadId, agentType })
          if (Option.isNone(stopped)) return yield* unknown("thread", threadId)
          return stopped.value ? Reply.empty(204) : yield* unknown("run", runId)
        })
      )
  })
})

/** Serves AG-UI until the scope closes. */
export const layer: Layer.Layer<AgUi, never, Turns.Needed> = Layer.scoped(AgUi, make)
