import { Effect, Layer, Metric } from "effect"
import { Metrics } from "../Observability/Metrics.ts"
import { ChangeFeed } from "./ChangeFeed.ts"

const watchers = Metric.gauge("change_feed_watchers", {
  description: "Followers of the change log: polls that wait, event streams and WebSockets."
})

const lag = Metric.gauge("change_feed_lag_changes", {
  description: "Changes that the WebSocket furthest behind has yet to be sent."
})

/** Measures the change feed whenever metrics are shown. */
export const layer: Layer.Layer<never, never, ChangeFeed | Metrics> = Layer.scopedDiscard(
  Effect.gen(function* () {
    const feed = yield* ChangeFeed
    const metrics = yield* Metrics
    yield* metrics.measure(
      Effect.zipRight(
        Effect.flatMap(feed.watchers, count => Metric.set(watchers, count)),
        Effect.flatMap(feed.lag, count => Metric.set(lag, count))
      )
    )
  })
)
