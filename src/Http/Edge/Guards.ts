/**
 * The middlewares of endpoints as the edge runs them, before a request is decoded.
 */
import { type Effect, Exit } from "effect"
import * as Direct from "../../Direct.ts"
import type { ApiError } from "../ApiError.ts"
import { JsonBody } from "../Contract.ts"
import type { Guard } from "../Endpoints.ts"
import type { NodeIncoming } from "../Incoming.ts"

/** The guards of an endpoint's middlewares. Throws on a middleware that has none. */
export const guardsOf = (
  endpoint: string,
  keys: ReadonlySet<string>,
  guards: ReadonlyArray<Guard>
): ReadonlyArray<Guard> => {
  const known = new Set([JsonBody.key, ...guards.map(({ middleware }) => middleware.key)])
  const unknown = [...keys].find(key => !known.has(key))
  if (unknown !== undefined)
    throw new Error(`The endpoint ${endpoint} wants a middleware unknown to the edge: ${unknown}`)
  return guards.filter(({ middleware }) => keys.has(middleware.key))
}

/**
 * Runs guards in order, and notes who sends the request. Returns `undefined` where all have let it in at once, else an
 * exit or an effect that says whether they do.
 */
export const admit = (
  guards: ReadonlyArray<Guard>,
  request: NodeIncoming,
  from = 0
): Effect.Effect<void, ApiError> | undefined => {
  for (let index = from; index < guards.length; index++) {
    let admitted: ReturnType<Guard["admit"]>
    try {
      admitted = guards[index]!.admit(request)
    } catch (error) {
      return Exit.die(error)
    }
    const exit = Direct.exitOf(admitted)
    if (exit === undefined) {
      return Direct.flatMap(admitted, identity => {
        if (identity !== undefined) request.identity = identity
        return admit(guards, request, index + 1) ?? Exit.void
      })
    }
    if (Exit.isFailure(exit)) return Exit.failCause(exit.cause)
    if (exit.value !== undefined) request.identity = exit.value
  }
  return undefined
}
