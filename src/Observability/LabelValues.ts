/**
 * Labels whose values come from outside, kept from making series without end.
 */
import { Metric, MetricLabel } from "effect"

/** What stands for all values that are too many or too long. */
export const other = "other"

/** Characters of a label's value. */
const longest = 64

/** The values of one label: those that come first have a series each, later ones share `other`. */
export class LabelValues {
  readonly #known = new Set<string>()

  /** @param most how many values get a series of their own */
  constructor(private readonly most = 100) {}

  /** The value as the label shows it. */
  of(value: string): string {
    if (value === other || this.#known.has(value)) return value
    if (this.#known.size >= this.most || value.length > longest) return other
    this.#known.add(value)
    return value
  }
}

/** A counter with one label, for hot paths: each series is looked up once. */
export interface LabelledCounter {
  /** Counts one more. */
  readonly increment: (value: string) => void
  /** Makes the counter known before anything was counted, with 0 for `other` and for the values that are known. */
  readonly register: (values?: ReadonlyArray<string>) => void
}

/** Counts by the values of a label, of which at most `most` have a series of their own. */
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
    increment: value => seriesOf(value).unsafeUpdate(1, []),
    register: (values = []) => {
      for (const value of [...values, other]) seriesOf(value).register()
    }
  }
}
