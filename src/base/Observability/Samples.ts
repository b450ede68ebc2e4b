/** Effect's metrics in the formats of both endpoints: JSON, and the Prometheus text exposition format 0.0.4. */
import { type MetricPair, MetricState, Option } from "effect"
import type { MetricTags } from "./MetricTags.ts"

/** The value of a histogram. */
export interface Distribution {
  readonly count: number
  readonly sum: number
  /** Cumulative, in ascending order; the last bound is infinite. */
  readonly buckets: ReadonlyArray<{ readonly le: number; readonly count: number }>
}

interface Series {
  readonly name: string
  readonly description: string
  readonly labels: Readonly<Record<string, string>>
}

/** A series and its current value. */
export type Sample =
  | (Series & { readonly kind: "counter" | "gauge"; readonly value: number })
  | (Series & { readonly kind: "histogram"; readonly value: Distribution })

const distribution = (state: MetricState.MetricState.Histogram): Distribution => {
  const finite = state.buckets.filter(([le]) => Number.isFinite(le)).map(([le, count]) => ({ le, count }))
  return { count: state.count, sum: state.sum, buckets: [...finite, { le: Infinity, count: state.count }] }
}

const ofState = (series: Series, state: MetricState.MetricState.Untyped): ReadonlyArray<Sample> => {
  const { name, labels } = series
  if (MetricState.isCounterState(state)) return [{ ...series, kind: "counter", value: Number(state.count) }]
  if (MetricState.isGaugeState(state)) return [{ ...series, kind: "gauge", value: Number(state.value) }]
  if (MetricState.isHistogramState(state)) return [{ ...series, kind: "histogram", value: distribution(state) }]
  if (MetricState.isFrequencyState(state)) {
    return [...state.occurrences].map(([value, count]) => ({
      ...series,
      labels: { ...labels, value },
      kind: "counter",
      value: count
    }))
  }
  if (MetricState.isSummaryState(state)) {
    return [
      ...state.quantiles.flatMap(
        ([quantile, value]): ReadonlyArray<Sample> =>
          Option.isNone(value)
            ? []
            : [{ ...series, labels: { ...labels, quantile: String(quantile) }, kind: "gauge", value: value.value }]
      ),
      { ...series, name: `${name}_sum`, kind: "counter", value: state.sum },
      { ...series, name: `${name}_count`, kind: "counter", value: state.count }
    ]
  }
  return []
}

/** Effect's own metrics of fibers, which are omitted. */
const isInternal = (name: string): boolean => name.startsWith("effect_fiber_")

/**
 * The series of a snapshot, sorted by name and labels. A frequency becomes a counter with the label `value`; a summary
 * becomes gauges with the label `quantile` and two counters. A series in which one of `tags` has another value belongs
 * to another instance, and is omitted.
 */
export const fromSnapshot = (
  pairs: Iterable<MetricPair.MetricPair.Untyped>,
  tags: MetricTags
): ReadonlyArray<Sample> => {
  const samples: Array<Sample> = []
  for (const { metricKey, metricState } of pairs) {
    if (isInternal(metricKey.name)) continue
    const labels = Object.fromEntries(
      metricKey.tags.map(({ key, value }): [string, string] => [key, value]).sort(([a], [b]) => (a < b ? -1 : 1))
    )
    if (tags.some(({ key, value }) => labels[key] !== undefined && labels[key] !== value)) continue
    const description = Option.getOrElse(metricKey.description, () => "")
    samples.push(...ofState({ name: metricKey.name, description, labels }, metricState))
  }
  const keyed = samples.map(sample => ({ sample, key: `${sample.name}\n${JSON.stringify(sample.labels)}` }))
  return keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0)).map(({ sample }) => sample)
}

const jsonValue = (sample: Sample): unknown =>
  sample.kind !== "histogram"
    ? sample.value
    : {
        ...sample.value,
        buckets: sample.value.buckets.map(({ le, count }) => ({ le: le === Infinity ? "+Inf" : le, count }))
      }

/** The JSON text of `{metrics: […]}`. A number that is not finite is `null`. */
export const toJson = (samples: ReadonlyArray<Sample>): string =>
  JSON.stringify({
    metrics: samples.map(sample => ({
      name: sample.name,
      kind: sample.kind,
      labels: sample.labels,
      value: jsonValue(sample)
    }))
  })

const metricName = (name: string): string => name.replace(/^[^a-zA-Z_:]/, "_").replace(/[^a-zA-Z0-9_:]/g, "_")

const labelName = (name: string, reserved: string | undefined): string => {
  const clean = name.replace(/^[^a-zA-Z_]/, "_").replace(/[^a-zA-Z0-9_]/g, "_")
  return clean === reserved ? `exported_${clean}` : clean
}

const escapeHelp = (text: string): string => text.replace(/\\/g, "\\\\").replace(/\n/g, "\\n")

const escapeValue = (text: string): string => escapeHelp(text).replace(/"/g, '\\"')

const number = (value: number): string =>
  value === Infinity ? "+Inf" : value === -Infinity ? "-Inf" : Number.isNaN(value) ? "NaN" : String(value)

type Labels = ReadonlyArray<readonly [string, string]>

const labelsOf = (sample: Sample): Labels => {
  const reserved = sample.kind === "histogram" ? "le" : undefined
  // Of labels with equal sanitized names the last one is kept, because duplicates are invalid.
  return [...new Map(Object.entries(sample.labels).map(([name, value]) => [labelName(name, reserved), value]))]
}

const line = (name: string, labels: Labels, value: number): string => {
  const shown = labels.map(([label, text]) => `${label}="${escapeValue(text)}"`).join(",")
  return `${name}${shown === "" ? "" : `{${shown}}`} ${number(value)}`
}

const linesOf = (name: string, sample: Sample): ReadonlyArray<string> => {
  const labels = labelsOf(sample)
  if (sample.kind !== "histogram") return [line(name, labels, sample.value)]
  const { buckets, sum, count } = sample.value
  return [
    ...buckets.map(bucket => line(`${name}_bucket`, [...labels, ["le", number(bucket.le)]], bucket.count)),
    line(`${name}_sum`, labels, sum),
    line(`${name}_count`, labels, count)
  ]
}

/**
 * Renders series, grouped by name under HELP and TYPE. If metrics share a name, series of another kind than the first
 * and series with duplicate labels are omitted, because scrapers refuse both.
 */
export const toPrometheus = (samples: ReadonlyArray<Sample>): string => {
  const families = new Map<string, { readonly head: Sample; readonly lines: Map<string, ReadonlyArray<string>> }>()
  for (const sample of samples) {
    const name = metricName(sample.name)
    const family = families.get(name) ?? { head: sample, lines: new Map<string, ReadonlyArray<string>>() }
    families.set(name, family)
    const identity = JSON.stringify([...labelsOf(sample)].sort())
    if (sample.kind !== family.head.kind || family.lines.has(identity)) continue
    family.lines.set(identity, linesOf(name, sample))
  }
  return [...families]
    .flatMap(([name, { head, lines }]) => [
      ...(head.description === "" ? [] : [`# HELP ${name} ${escapeHelp(head.description)}`]),
      `# TYPE ${name} ${head.kind}`,
      ...[...lines.values()].flat()
    ])
    .map(text => `${text}\n`)
    .join("")
}
