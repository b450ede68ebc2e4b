/**
 * What is answered where no handler answers, whichever server it is.
 */
import { type ApiError, InternalServerError, MethodNotAllowed, NotFound } from "./ApiError.ts"
import { type AllowedMethods, pathOf } from "./Routes.ts"

/** What a client is told of a defect: the detail is for the log. */
export const defect = () => new InternalServerError({ error: "Internal server error" })

/** What a request is told that no route took. */
export const unrouted = (target: string, allowed: AllowedMethods): ApiError => {
  const allow = allowed(pathOf(target))
  return allow === undefined
    ? new NotFound({ error: "Not found" })
    : new MethodNotAllowed({ error: `Method not allowed; this path takes ${allow}`, headers: { allow } })
}
