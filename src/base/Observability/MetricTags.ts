/**
 * Tags that distinguish the metrics of several instances in one process. They are Effect's own metric labels, as
 * `Effect.tagMetrics` sets them. Code that measures without a fiber reads them once, when its layer is built.
 */
import { Effect, FiberRef, Layer, Metric, MetricLabel, type Scope } from "effect"

/** The tags of an instance: the same array during its whole life, because Effect looks up series by it. */
export type MetricTags = ReadonlyArray<MetricLabel.MetricLabel>

/** Of an instance without tags. Its metrics cost no look-up. */
export const none: MetricTags = []

/** The tags of the instance whose layer is being built. */
export const current: Effect.Effect<MetricTags> = Effect.metricLabels

/** Registers series of an instance with their initial values. */
export const register = (
  metrics: Iterable<{ readonly unsafeValue: (tags: MetricTags) => unknown }>,
  tags: MetricTags
): void => {
  for (const metric of metrics) metric.unsafeValue(tags)
}

/** Labels that metrics of this package have. A tag of the same name would replace their values. */
export const reserved: ReadonlySet<string> = new Set([
  ...["from", "le", "method", "operation", "outcome", "quantile", "reason", "route", "status", "to", "type"],
  ...["file", "holder", "node", "pool", "protocol", "state", "table", "task", "upstream", "value"]
])

const problemOf = (name: string): string | undefined => {
  if (!/^(?!__)[a-zA-Z_][a-zA-Z0-9_]*$/.test(name)) {
    return `The metric tag ${JSON.stringify(name)} is no label of Prometheus: letters, digits and _, no digit first, no __`
  }
  return reserved.has(name) ? `The metric tag ${name} is a label that metrics have already` : undefined
}

/**
 * Makes a layer an instance with separate metrics: each of its series gets these tags, and `/metrics` of the instance
 * omits series in which one of these tags has another value, which belong to other instances. Metrics of the
 * process (memory, event loop, log) stay without tags.
 *
 * ```ts
 * const application = Layer.merge(
 *   MetricTags.tagged({ store: "orders" })(orders),
 *   MetricTags.tagged({ store: "sessions" })(sessions)
 * )
 * ```
 *
 * Layers are usually built once per program; those within `layer` are built for this instance alone. What it
 * shares with other instances is a requirement of `layer`, provided outside. Without tags nothing else changes. A tag that
 * cannot be a label, or is one already, is a defect of the layer.
 */
export const tagged =
  (tags: Readonly<Record<string, string>>) =>
  <A, E, R>(layer: Layer.Layer<A, E, R>): Layer.Layer<A, E, Exclude<R, Scope.Scope>> => {
    const problem = Object.keys(tags)
      .map(problemOf)
      .find(found => found !== undefined)
    if (problem !== undefined) return Layer.die(new Error(problem))
    const labels = Object.entries(tags).map(([name, value]) => MetricLabel.make(name, value))
    // Its parts are shared with no other instance, and it is built once itself, which a fresh layer is not.
    const instance = Layer.scopedContext(Layer.build(layer))
    return labels.length === 0
      ? instance
      : Layer.locallyWith(instance, FiberRef.currentMetricLabels, outer => [...outer, ...labels])
  }

/** The label's value for all values beyond the bounds. */
export const other = "other"

/** The maximum length of a value, in characters. */
const longest = 64

/** The values of one label: the first ones have their own series, later ones share `other`. */
export class LabelValues {
  readonly #known = new Set<string>()

  /** @param most the maximum number of values with their own series */
  constructor(private readonly most = 100) {}

  /** The label's value for a value. */
  of(value: string): string {
    if (value === other || this.#known.has(value)) return value
    if (this.#known.size >= this.most || value.length > longest) return other
    this.#known.add(value)
    return value
  }
}

/** A counter with one label, for hot paths: each series is looked up only once. */
export interface LabelledCounter {
  /** Adds one, for the instance with these tags. */
  readonly increment: (value: string, tags: MetricTags) => void
  /** Registers the series of these values and of `other` with 0. */
  readonly register: (values: ReadonlyArray<string>, tags: MetricTags) => void
}

/** A counter by the values of a label, of which at most `most` have their own series. */
export const counter = (
  name: string,
  options: { readonly label: string; readonly description: string; readonly most?: number }
): LabelledCounter => {
  const values = new LabelValues(options.most)
  const metric = Metric.counter(name, { description: options.description, incremental: true })
  const series = new Map<string, Metric.Metric.Counter<number>>()
  const seriesOf = (value: string): Metric.Metric.Counter<number> => {
    const shown = values.of(value)
    const known = series.get(shown)
    if (known !== undefined) return known
    const made = Metric.taggedWithLabels(metric, [MetricLabel.make(options.label, shown)])
    series.set(shown, made)
    return made
  }
  return {
    increment: (value, tags) => seriesOf(value).unsafeUpdate(1, tags),
    register: (values, tags) => register([...values, other].map(seriesOf), tags)
  }
}
