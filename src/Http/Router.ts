/** Routing of requests: reading targets, matching routes, and the answer if no route matches. */
import type { IncomingMessage } from "node:http"
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Context, Option } from "effect"
import { type ApiError, MethodNotAllowed, NotFound } from "./ApiError.ts"
import { RouteKind } from "./Contract.ts"

const route = Symbol("causeway/route")

interface Routed extends IncomingMessage {
  [route]?: string
}

/** A route template for metrics and spans, with parameters as in `{key}`, as in the OpenAPI document. */
export const label = (template: string): string =>
  template
    .split("/")
    .map(segment => (segment.startsWith(":") ? `{${segment.slice(1)}}` : segment))
    .join("/")

export const note = (request: Routed, label: string): void => {
  request[route] = label
}

/** The stored label, if any. */
export const noted = (request: Routed): string | undefined => request[route]

/**
 * The configuration of the platform's router that reads names of entries correctly: of any length, with case, and
 * with every slash.
 */
export const routerConfig = {
  maxParamLength: 65_536,
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false
} as const

/** Decodes percent-encoded UTF-8. Returns `undefined` if it is malformed. */
const decode = (text: string): string | undefined => {
  if (!text.includes("%")) return text
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

/** The problem with a request's target, or `undefined`. */
export const problemOfTarget = (target: string): string | undefined => {
  if (target.includes("#")) return "The request target must not have a fragment; a # in a name is written %23"
  if (decode(target) !== undefined) return undefined
  return decode(target.split("?", 1)[0]!) === undefined
    ? "The path is not percent-encoded UTF-8"
    : "The query is not percent-encoded UTF-8"
}

/** The target in the form that the platform's router needs, for which a `;` would begin the query. */
export const routable = (target: string): string => {
  if (!target.includes(";")) return target
  const query = target.indexOf("?")
  return query === -1
    ? target.replaceAll(";", "%3B")
    : target.slice(0, query).replaceAll(";", "%3B") + target.slice(query)
}

/** The scheme and host of a target in absolute form (RFC 9112, 3.2.2). */
const origin = /^https?:\/\/[^/?]*/i

export const pathOf = (target: string): string => {
  const query = target.indexOf("?")
  const path = query === -1 ? target : target.slice(0, query)
  return path.startsWith("/") ? path : path.replace(origin, "")
}

interface Node<A> {
  readonly statics: Map<string, Node<A>>
  parameter: Node<A> | undefined
  readonly methods: Map<string, Route<A>>
}

interface Route<A> {
  readonly names: ReadonlyArray<string>
  readonly value: A
}

/** A matched route, and the path's parameters as the client wrote them. */
export interface Match<A> {
  readonly value: A
  readonly params: Record<string, string>
}

const node = <A>(): Node<A> => ({ statics: new Map(), parameter: undefined, methods: new Map() })

/**
 * Routes by method and path template, as in `/kv/:namespace/:key`: a tree of segments, static ones before parameters.
 * HEAD uses the routes of GET.
 */
export class Router<A> {
  readonly #root = node<A>()
  readonly #methods = new Set<string>()

  add(method: string, template: string, value: A): void {
    this.#methods.add(method)
    if (method === "GET") this.#methods.add("HEAD")
    const names: Array<string> = []
    let at = this.#root
    for (const segment of template.split("/").slice(1)) {
      if (segment.startsWith(":")) {
        names.push(segment.slice(1))
        at.parameter ??= node()
        at = at.parameter
      } else {
        const next = at.statics.get(segment) ?? node<A>()
        at.statics.set(segment, next)
        at = next
      }
    }
    at.methods.set(method, { names, value })
  }

  find(method: string, path: string): Match<A> | undefined {
    if (path.charCodeAt(0) !== 0x2f) return undefined
    const values: Array<string> = []
    const route = this.#walk(this.#root, path, 1, method, values)
    if (route === undefined) return undefined
    const params: Record<string, string> = {}
    for (let index = 0; index < route.names.length; index++) params[route.names[index]!] = values[index]!
    return { value: route.value, params }
  }

  /** The methods that a path allows, in alphabetical order. */
  methodsOf(path: string): ReadonlyArray<string> {
    return [...this.#methods].filter(method => this.find(method, path) !== undefined).sort()
  }

  /** Whether a path has segments after a route that ends with a name, as if a client has not encoded a `/`. */
  goesBeyondName(path: string): boolean {
    return this.#isBeyond(this.#root, path, 1)
  }

  #isBeyond({ parameter, statics }: Node<A>, path: string, from: number): boolean {
    const slash = path.indexOf("/", from)
    if (slash === -1) return false
    const next = statics.get(path.slice(from, slash))
    if (next !== undefined && this.#isBeyond(next, path, slash + 1)) return true
    return parameter !== undefined && (parameter.methods.size > 0 || this.#isBeyond(parameter, path, slash + 1))
  }

  #walk(at: Node<A>, path: string, from: number, method: string, values: Array<string>): Route<A> | undefined {
    const slash = path.indexOf("/", from)
    const segment = slash === -1 ? path.slice(from) : path.slice(from, slash)
    const next = at.statics.get(decode(segment) ?? segment)
    if (next !== undefined) {
      const found = slash === -1 ? routeOf(next, method) : this.#walk(next, path, slash + 1, method, values)
      if (found !== undefined) return found
    }
    if (at.parameter === undefined) return undefined
    const depth = values.push(segment)
    const found =
      slash === -1 ? routeOf(at.parameter, method) : this.#walk(at.parameter, path, slash + 1, method, values)
    if (found === undefined) values.length = depth - 1
    return found
  }
}

const routeOf = <A>(at: Node<A>, method: string): Route<A> | undefined =>
  at.methods.get(method) ?? (method === "HEAD" ? at.methods.get("GET") : undefined)

/** The parameters of a query string: a string each, or all strings of a repeated one. */
export const parseQuery = (query: string): Record<string, string | Array<string>> => {
  const params: Record<string, string | Array<string>> = {}
  if (query === "") return params
  for (const [name, value] of new URLSearchParams(query)) {
    const before = Object.hasOwn(params, name) ? params[name] : undefined
    if (before === undefined) {
      Object.defineProperty(params, name, { value, enumerable: true, writable: true, configurable: true })
    } else if (typeof before === "string") params[name] = [before, value]
    else before.push(value)
  }
  return params
}

/**
 * The endpoints of an api, each with its group. `HttpApi.reflect` also computes the schemas of all answers, which takes
 * milliseconds.
 */
export const endpointsOf = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
) =>
  (Object.values(api.groups) as unknown as ReadonlyArray<HttpApiGroup.HttpApiGroup.AnyWithProps>).flatMap(group =>
    (Object.values(group.endpoints) as ReadonlyArray<HttpApiEndpoint.HttpApiEndpoint.AnyWithProps>).map(endpoint => ({
      group,
      endpoint
    }))
  )

export const routesOf = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): Router<string> => {
  const router = new Router<string>()
  for (const { endpoint } of endpointsOf(api)) router.add(endpoint.method, endpoint.path, label(endpoint.path))
  return router
}

/** Finds the kind of a route by its label and method; `undefined` for a route without one. */
export type KindOf = (route: string, method: string) => Context.Tag.Service<RouteKind> | undefined

/** The kinds of an api's routes: of the endpoint, or else of its group. */
export const kindsOf = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): KindOf => {
  const kinds = new Map(
    endpointsOf(api).map(({ endpoint, group }) => {
      const kind = Context.getOption(Context.merge(group.annotations, endpoint.annotations), RouteKind)
      return [`${endpoint.method} ${label(endpoint.path)}`, Option.getOrUndefined(kind)]
    })
  )
  return (route, method) => kinds.get(`${method === "HEAD" ? "GET" : method} ${route}`)
}

/** The answer to a request that matches no route. */
export const unrouted = (target: string, router: Router<unknown>): ApiError => {
  const path = pathOf(target)
  const allow = router.methodsOf(path).join(", ")
  if (allow !== "") {
    return new MethodNotAllowed({ error: `Method not allowed; this path takes ${allow}`, headers: { allow } })
  }
  const advice = router.goesBeyondName(path) ? "; percent-encode / in names, as %2F" : ""
  return new NotFound({ error: `Not found: the service has no such route${advice}` })
}
