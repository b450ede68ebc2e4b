/** What the contract in src/app/Api.ts says of a route's answers. */
import * as HttpApi from "@effect/platform/HttpApi"
import { Either, Option, Schema } from "effect"
import { StoreApi as Api } from "../../../src/app/Api.ts"
import type { Answer } from "./Client.ts"

interface Route {
  readonly method: string
  readonly path: string
  readonly pattern: RegExp
  /** The body of each declared status; `undefined` if it has none. */
  readonly bodies: ReadonlyMap<number, Schema.Schema<unknown> | undefined>
}

/** All routes; the words of a template win over parameters, as they do in the router. */
export const routes: ReadonlyArray<Route> = (() => {
  const found: Array<Route> = []
  HttpApi.reflect(Api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint, errors, successes }) => {
      const bodies = new Map<number, Schema.Schema<unknown> | undefined>()
      for (const [status, { ast }] of [...successes, ...errors]) {
        bodies.set(status, Option.getOrUndefined(Option.map(ast, found => Schema.make<unknown>(found))))
      }
      const pattern = new RegExp(`^${endpoint.path.replace(/:\w+/g, "[^/]*")}$`)
      found.push({ method: endpoint.method, path: endpoint.path, pattern, bodies })
    }
  })
  return found.sort((a, b) => Number(a.path.includes(":")) - Number(b.path.includes(":")))
})()

/** Statuses that the server may answer on any route. */
const everywhere: ReadonlyArray<number> = [400, 404, 405]

/** How an answer violates the contract, or `undefined`. A HEAD has the contract of GET, without a body. */
export const breach = (method: string, target: string, answer: Answer): string | undefined => {
  const { status, text } = answer
  const path = target.split("?", 1)[0]!
  const effective = method === "HEAD" ? "GET" : method
  const route = routes.find(candidate => candidate.method === effective && candidate.pattern.test(path))
  if (route === undefined) return undefined
  const name = `${method} ${route.path}`
  if (!route.bodies.has(status)) {
    return everywhere.includes(status) ? undefined : `${name} does not declare status ${status}`
  }
  const body = route.bodies.get(status)
  if (body === undefined || method === "HEAD") return text === "" ? undefined : `${name} sends a body with ${status}`
  const json = answer.headers["content-type"] === "application/json"
  const decoded = Schema.decodeUnknownEither(body, { onExcessProperty: "error" })(json ? JSON.parse(text) : text)
  return Either.isRight(decoded) ? undefined : `${name}, ${status}: ${decoded.left.message} in ${text.slice(0, 1000)}`
}
