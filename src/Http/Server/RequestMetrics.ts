/**
 * Counts and durations of HTTP requests, by route template. Paths never become labels, so clients cannot create series.
 */
import type { ServerResponse } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Effect, Metric, MetricBoundaries, MetricLabel } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Router from "../Router.ts"
import type { Observe } from "./Gate.ts"

/** The label of a path without a route. */
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

/** Finds the route label of a request target, for any method. */
export const routeLabels = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): ((target: string) => string) => {
  const routes = Router.routesOf(api)
  return target => {
    const path = Router.pathOf(target)
    const [method = ""] = routes.methodsOf(path)
    return routes.find(method, path)?.value ?? unknownRoute
  }
}

/**
 * Whether any part of an answer was passed to its connection. `headersSent` only says that its head exists, which may
 * still wait.
 */
const hasStarted = (response: ServerResponse): boolean =>
  response.writableEnded || Reflect.get(response, "_headerSent") === true

/** Observes the requests to an api. The status is `aborted` if the client disconnected before it got an answer. */
export const observer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): Effect.Effect<Observe> =>
  Effect.map(Effect.all([Effect.clock, MetricTags.current]), ([clock, tags]) => {
    const routeOf = routeLabels(api)
    const seriesOf = knownSeries()
    registerDeclared(api, seriesOf, tags)
    return (request, response) => {
      const start = clock.unsafeCurrentTimeNanos()
      inFlight.unsafeModify(1, tags)
      return () => {
        const { method = "" } = request
        const series = seriesOf(
          Router.noted(request) ?? routeOf(request.url ?? ""),
          methods.has(method) ? method : "other"
        )
        inFlight.unsafeModify(-1, tags)
        series.countOf(hasStarted(response) ? response.statusCode : "aborted").unsafeUpdate(1, tags)
        series.time.unsafeUpdate(Number(clock.unsafeCurrentTimeNanos() - start) / 1e6, tags)
      }
    }
  })

/**
 * Registers the series of each endpoint with 0, for the statuses that it declares: `rate()` misses the increase from no
 * value to the first, and an alert on a series that does not exist has no data.
 */
const registerDeclared = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  seriesOf: (route: string, method: string) => Series,
  tags: MetricTags.MetricTags
): void =>
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint, successes, errors }) => {
      const series = seriesOf(Router.label(endpoint.path), endpoint.method)
      const counts = [...successes.keys(), ...errors.keys()].map(status => series.countOf(status))
      MetricTags.register([series.time, ...counts], tags)
    }
  })

/** The series of a route and method. */
class Series {
  readonly time
  readonly #counts = new Map<number | "aborted", Metric.Metric.Counter<number>>()
  readonly #labels

  constructor(route: string, method: string) {
    this.#labels = [MetricLabel.make("route", route), MetricLabel.make("method", method)]
    this.time = Metric.taggedWithLabels(durations, this.#labels)
  }

  countOf(status: number | "aborted"): Metric.Metric.Counter<number> {
    let count = this.#counts.get(status)
    if (count === undefined) {
      count = Metric.taggedWithLabels(requests, [...this.#labels, MetricLabel.make("status", String(status))])
      this.#counts.set(status, count)
    }
    return count
  }
}

/** Caches series: finding a metric by its labels costs more than counting. */
const knownSeries = () => {
  const known = new Map<string, Map<string, Series>>()
  const add = (route: string, method: string): Series => {
    const series = new Series(route, method)
    known.set(route, (known.get(route) ?? new Map<string, Series>()).set(method, series))
    return series
  }
  return (route: string, method: string): Series => known.get(route)?.get(method) ?? add(route, method)
}
