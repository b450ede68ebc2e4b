import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect, FiberSet, type Scope } from "effect"
import * as Answer from "./Answer.ts"
import { Command, follow, type Parts, stateOf } from "./Control.ts"
import { sound } from "./Fault.ts"

const refuse = (status: number, message: string): Answer.Refused => new Answer.Refused({ status, message })

const answer = (request: IncomingMessage, parts: Parts, bodyBytes: number) =>
  Effect.gen(function* () {
    if (request.url !== "/control") return yield* refuse(404, "Not found")
    if (request.method === "GET") return Answer.json(200, stateOf(parts))
    if (request.method !== "POST") return yield* refuse(405, "Only GET and POST are allowed")
    // A page of another origin cannot send this type without asking first, and is not answered when it asks.
    if (!/^application\/json\b/i.test(request.headers["content-type"] ?? "")) {
      return yield* refuse(415, "The body must be application/json")
    }
    const command = yield* Answer.decodeBody(request, bodyBytes, Command)
    const result = yield* Effect.mapError(follow(parts, command), error => refuse(409, error.message))
    return Answer.json(200, { ok: true, result })
  }).pipe(Effect.catchAll(refused => Effect.succeed(Answer.refusal(refused))))

/** Serves `/control` to other processes: GET answers the state, POST follows a command. */
export const handler = (
  parts: Parts,
  bodyBytes: number
): Effect.Effect<(request: IncomingMessage, response: ServerResponse) => void, never, Scope.Scope> =>
  Effect.map(FiberSet.makeRuntime<never>(), run => (request, response) => {
    const work = run(
      Effect.flatMap(answer(request, parts, bodyBytes), answer => Answer.deliver(response, answer, sound))
    )
    Answer.endWith(response, work)
  })
