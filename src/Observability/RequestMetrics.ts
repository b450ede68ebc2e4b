/**
 * Counts and times of HTTP requests, by route template: paths never become labels, so that strangers cannot
 * make series.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Effect, Metric, MetricBoundaries, MetricLabel } from "effect"
import * as Route from "../Http/Route.ts"

/** The label of a path that no route has. */
export const unknownRoute = "unknown"

const methods = new Set(["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"])

const requests = Metric.counter("http_requests_total", {
  description: "HTTP requests that came to an end, by route, method and status.",
  incremental: true
})

const inFlight = Metric.gauge("http_requests_in_flight", { description: "HTTP requests being served." })

const durations = Metric.histogram(
  "http_request_duration_ms",
  MetricBoundaries.fromIterable([0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000]),
  "Milliseconds from the head of an HTTP request to the end of its answer, by route and method."
)

interface Template {
  readonly segments: ReadonlyArray<string>
  readonly label: string
}

/** Finds the route template of a request target, with parameters as in `{key}`. */
export const routeLabels = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): ((target: string) => string) => {
  const byLength = new Map<number, Array<Template>>()
  const seen = new Set<string>()
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint: { path } }) => {
      if (seen.has(path)) return
      seen.add(path)
      const segments = path.split("/")
      const sameLength = byLength.get(segments.length) ?? []
      byLength.set(segments.length, sameLength)
      sameLength.push({ segments, label: Route.label(path) })
    }
  })
  return target => {
    const query = target.indexOf("?")
    const segments = (query === -1 ? target : target.slice(0, query)).split("/")
    const found = byLength
      .get(segments.length)
      ?.find(template => template.segments.every((part, index) => part.startsWith(":") || part === segments[index]))
    return found?.label ?? unknownRoute
  }
}

/** Called with each request as it comes in. */
export type Observer = (request: IncomingMessage, response: ServerResponse) => void

/** Watches the requests to an api. The status `aborted` is that of a client that left before it got an answer. */
export const observer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): Effect.Effect<Observer> =>
  Effect.map(Effect.clock, clock => {
    const routeOf = routeLabels(api)
    const count = cached((route, method, status) =>
      Metric.taggedWithLabels(requests, [
        MetricLabel.make("route", route),
        MetricLabel.make("method", method),
        MetricLabel.make("status", status)
      ])
    )
    const time = cached((route, method) =>
      Metric.taggedWithLabels(durations, [MetricLabel.make("route", route), MetricLabel.make("method", method)])
    )
    return (request, response) => {
      const start = clock.unsafeCurrentTimeNanos()
      inFlight.unsafeModify(1, [])
      response.once("close", () => {
        const route = Route.noted(request) ?? routeOf(request.url ?? "")
        const method = request.method !== undefined && methods.has(request.method) ? request.method : "other"
        const status = response.headersSent ? String(response.statusCode) : "aborted"
        inFlight.unsafeModify(-1, [])
        count(route, method, status).unsafeUpdate(1, [])
        time(route, method, "").unsafeUpdate(Number(clock.unsafeCurrentTimeNanos() - start) / 1e6, [])
      })
    }
  })

/** Looking a metric up by its labels costs more than counting: each is kept. */
const cached = <A>(make: (route: string, method: string, status: string) => A) => {
  const known = new Map<string, A>()
  return (route: string, method: string, status: string): A => {
    const key = `${route} ${method} ${status}`
    const metric = known.get(key) ?? make(route, method, status)
    known.set(key, metric)
    return metric
  }
}
