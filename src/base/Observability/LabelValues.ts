/**
 * Labels with values from outside, with a bounded number of series.
 */
import { Metric, MetricLabel } from "effect"
import * as MetricTags from "../MetricTags.ts"

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
  readonly increment: (value: string, tags: MetricTags.MetricTags) => void
  /** Registers the series of these values and of `other` with 0. */
  readonly register: (values: ReadonlyArray<string>, tags: MetricTags.MetricTags) => void
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
    register: (values, tags) => MetricTags.register([...values, other].map(seriesOf), tags)
  }
}
