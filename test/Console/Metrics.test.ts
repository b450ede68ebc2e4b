/** How the console reads the metrics of the service, in virtual time, and the figures that it plots. */
import { afterEach, assert, beforeEach, describe, it, vi } from "vitest"
import { between, type Snapshot } from "../../src/Console/Overview/Figures.ts"
import { sourceOf, stubPage } from "./Page.ts"

const json = () => Response.json({ metrics: [{ name: "process_uptime_seconds", kind: "gauge", labels: {}, value: 1 }] })

const text = () => new Response("# TYPE process_uptime_seconds gauge\nprocess_uptime_seconds 1\n")

interface Signal<A> {
  readonly value: A
}

interface Metrics {
  readonly history: Signal<ReadonlyArray<unknown>>
  readonly isDevMode: Signal<boolean>
  readonly isTryingToken: Signal<boolean>
  readonly metricsRefusal: Signal<string>
  readonly metricsState: Signal<string>
  readonly useMetricsToken: (token: string) => void
  readonly watchMetrics: (ended: AbortSignal) => Promise<void>
}

type Answer = (path: string, token: string | null) => Response

describe("The metrics in the console", () => {
  let answer: Answer = json
  let ended = new AbortController()

  const ask: typeof fetch = async (path, options) =>
    answer(String(path), new Headers(options?.headers).get("authorization"))

  beforeEach(() => {
    ended = new AbortController()
    vi.useFakeTimers()
    stubPage(ask)
  })

  afterEach(() => {
    ended.abort()
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  const watch = async () => {
    const metrics: Metrics = await import(sourceOf("Overview/Metrics.ts"))
    void metrics.watchMetrics(ended.signal)
    await vi.advanceTimersByTimeAsync(0)
    return metrics
  }

  it("are not given up where the service answers 503 for a while", async () => {
    answer = json
    const { history, isDevMode, metricsState } = await watch()
    await vi.advanceTimersByTimeAsync(10_000)
    assert.strictEqual(history.value.length, 5)
    answer = () => Response.json({ error: "The service is shutting down" }, { status: 503 })
    await vi.advanceTimersByTimeAsync(10_000)
    answer = json
    await vi.advanceTimersByTimeAsync(10_000)
    assert.deepStrictEqual([metricsState.value, isDevMode.value], ["shown", true])
    assert.strictEqual(history.value.length, 10)
  })

  it("are hidden where there is no route, which is not asked for again", async () => {
    let asked = 0
    answer = () => {
      asked++
      return new Response("", { status: 404 })
    }
    const { metricsState } = await watch()
    await vi.advanceTimersByTimeAsync(60_000)
    assert.deepStrictEqual([metricsState.value, asked], ["hidden", 2])
  })

  it("are locked without a request if the page knows that they require a token", async () => {
    const asked: Array<string> = []
    answer = path => {
      asked.push(path)
      return text()
    }
    stubPage(ask, { lockedMetrics: "../metrics", root: "../" })
    const { metricsState, useMetricsToken } = await watch()
    assert.deepStrictEqual([metricsState.value, asked], ["locked", []])
    useMetricsToken("right")
    await vi.advanceTimersByTimeAsync(0)
    assert.deepStrictEqual([metricsState.value, asked], ["shown", ["/metrics"]])
  })

  it("are locked without their token, which is tried at once", async () => {
    answer = (path, token) => {
      if (path !== "/metrics") return new Response("", { status: 404 })
      return token === "Bearer right" ? text() : new Response("", { status: 401 })
    }
    const { isTryingToken, metricsRefusal, metricsState, useMetricsToken } = await watch()
    assert.deepStrictEqual([metricsState.value, metricsRefusal.value], ["locked", ""])
    useMetricsToken("wrong")
    assert.isTrue(isTryingToken.value)
    await vi.advanceTimersByTimeAsync(0)
    assert.deepStrictEqual([metricsState.value, isTryingToken.value], ["locked", false])
    assert.strictEqual(metricsRefusal.value, "Invalid token.")
    useMetricsToken("right")
    await vi.advanceTimersByTimeAsync(0)
    assert.strictEqual(metricsState.value, "shown")
    assert.strictEqual(sessionStorage.getItem("causeway.metrics-token"), "right")
  })
})

const requestsOf = (route: string, value: number, at: number): Snapshot => ({
  at,
  values: new Map([["http_requests_total", [{ labels: { route, status: "200" }, value }]]])
})

describe("the rate of requests", () => {
  it.each([
    ["/api/v1/kv/{namespace}/{key}", 5],
    ["/api/v1/batch", 5],
    ["/console", 0],
    ["/console/", 0],
    ["/console/assets/{file}", 0],
    ["/docs", 0],
    ["/docs/", 0],
    ["/docs/assets/{file}", 0],
    ["/health", 0],
    ["/api/v1/ready", 0],
    ["/api/metrics", 0]
  ])("counts requests to %s: %d per second", (route, rate) => {
    assert.strictEqual(between(requestsOf(route, 0, 0), requestsOf(route, 10, 2000)).succeeded, rate)
  })
})
