/**
 * The routes of an api: how targets are read, which route takes one, and what is answered where none does.
 */
import type { IncomingMessage } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { type ApiError, MethodNotAllowed, NotFound } from "./ApiError.ts"

const route = Symbol("causeway/route")

interface Routed extends IncomingMessage {
  [route]?: string
}

/** A route template as metrics and spans show it: with parameters as in `{key}`, as the document of the api has them. */
export const label = (template: string): string =>
  template
    .split("/")
    .map(segment => (segment.startsWith(":") ? `{${segment.slice(1)}}` : segment))
    .join("/")

/** Notes the label of the route that takes a request. */
export const note = (request: Routed, label: string): void => {
  request[route] = label
}

/** The noted label, if any. */
export const noted = (request: Routed): string | undefined => request[route]

/**
 * The configuration of the platform's router by which names of entries are read right: of any length, with case, and
 * with every slash.
 */
export const routerConfig = {
  maxParamLength: 65_536,
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false
} as const

const isPercentEncoded = (text: string): boolean => {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/** What is wrong with a request's target, or `undefined`. */
export const problemOfTarget = (target: string): string | undefined => {
  if (target.includes("#")) return "The request target must not have a fragment; a # in a name is written %23"
  if (!target.includes("%") || isPercentEncoded(target)) return undefined
  return isPercentEncoded(target.split("?", 1)[0]!)
    ? "The query is not percent-encoded UTF-8"
    : "The path is not percent-encoded UTF-8"
}

/** The target as the platform's router needs it, to which a `;` would begin the query. */
export const routable = (target: string): string => {
  if (!target.includes(";")) return target
  const query = target.indexOf("?")
  return query === -1
    ? target.replaceAll(";", "%3B")
    : target.slice(0, query).replaceAll(";", "%3B") + target.slice(query)
}

/** What precedes the path in a target in absolute form (RFC 9112, 3.2.2). */
const origin = /^https?:\/\/[^/?]*/i

/** The path of a request's target. */
export const pathOf = (target: string): string => {
  const query = target.indexOf("?")
  const path = query === -1 ? target : target.slice(0, query)
  return path.startsWith("/") ? path : path.replace(origin, "")
}

interface Route {
  readonly segments: ReadonlyArray<string>
  readonly methods: Set<string>
}

const segmentsOf = (path: string): ReadonlyArray<string> => path.split("/").slice(1)

/** Whether a path, whose segments are decoded, is of a route. */
const matches = (template: ReadonlyArray<string>, path: ReadonlyArray<string>): boolean =>
  template.length === path.length &&
  template.every((segment, index) => segment.startsWith(":") || segment === path[index])

/** The methods that a path takes, as an `Allow` header lists them, or `undefined` for an unknown path. */
export type AllowedMethods = (path: string) => string | undefined

/** Collects the routes of an api; HEAD goes wherever GET does. */
export const allowedMethods = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): AllowedMethods => {
  const routes = new Map<string, Route>()
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint }) => {
      const route = routes.get(endpoint.path) ?? { segments: segmentsOf(endpoint.path), methods: new Set<string>() }
      route.methods.add(endpoint.method)
      if (endpoint.method === "GET") route.methods.add("HEAD")
      routes.set(endpoint.path, route)
    }
  })
  return path => {
    const segments = segmentsOf(path).map(segment =>
      isPercentEncoded(segment) ? decodeURIComponent(segment) : segment
    )
    const methods = new Set<string>()
    for (const route of routes.values()) {
      if (matches(route.segments, segments)) for (const method of route.methods) methods.add(method)
    }
    return methods.size === 0 ? undefined : [...methods].sort().join(", ")
  }
}

/** The answer to a request that no route takes. */
export const unrouted = (target: string, allowed: AllowedMethods): ApiError => {
  const allow = allowed(pathOf(target))
  return allow === undefined
    ? new NotFound({ error: "Not found" })
    : new MethodNotAllowed({ error: `Method not allowed; this path takes ${allow}`, headers: { allow } })
}
