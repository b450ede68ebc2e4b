/** The figures of the time between two readings of the metrics. */
import type { Sample } from "../../base/Observability/Samples.ts"
import type { KindOf } from "../../Http/Router.ts"
import type { BreakerState, Current, Figures } from "./Model.ts"

type Labels = Sample["labels"]

type Matches = (labels: Labels) => boolean

/** All series at one time, by name. */
export interface Reading {
  /** Monotonic milliseconds. */
  readonly at: number
  readonly series: ReadonlyMap<string, ReadonlyArray<Sample>>
}

export const readingOf = (at: number, samples: ReadonlyArray<Sample>): Reading => ({
  at,
  series: Map.groupBy(samples, ({ name }) => name)
})

/** The number of a series: the sum of a histogram. */
const numberOf = (sample: Sample): number => (sample.kind === "histogram" ? sample.value.sum : sample.value)

const any: Matches = () => true

const sum = ({ series }: Reading, name: string, matches: Matches = any): number =>
  (series.get(name) ?? []).reduce((all, sample) => (matches(sample.labels) ? all + numberOf(sample) : all), 0)

/** The counts of a histogram up to each bound, over all of its series. */
const bucketsOf = ({ series }: Reading, name: string, matches: Matches): ReadonlyMap<number, number> => {
  const counts = new Map<number, number>()
  for (const sample of series.get(name) ?? []) {
    if (sample.kind !== "histogram" || !matches(sample.labels)) continue
    for (const { count, le } of sample.value.buckets) counts.set(le, (counts.get(le) ?? 0) + count)
  }
  return counts
}

/** Quantiles of a histogram between two readings, interpolated within their buckets as Prometheus does it. */
const quantiles = (
  earlier: Reading,
  later: Reading,
  name: string,
  wanted: ReadonlyArray<number>,
  matches: Matches = any
): ReadonlyArray<number> => {
  const before = bucketsOf(earlier, name, matches)
  const buckets = [...bucketsOf(later, name, matches)]
    .map(([le, count]) => [le, count - (before.get(le) ?? 0)] as const)
    .sort(([a], [b]) => a - b)
  const total = buckets.at(-1)?.[1] ?? 0
  return wanted.map(q => {
    const rank = q * total
    if (rank <= 0) return Number.NaN
    let lower = 0
    let below = 0
    for (const [le, cumulative] of buckets) {
      if (cumulative >= rank) {
        if (le === Number.POSITIVE_INFINITY) return lower
        return lower + ((le - lower) * (rank - below)) / Math.max(1, cumulative - below)
      }
      lower = le
      below = cumulative
    }
    return lower
  })
}

/** The figures between two readings. `NaN` if there was nothing to measure. */
export const between = (earlier: Reading, later: Reading, kindOf: KindOf): Figures => {
  const kindBy = ({ method = "", route = "" }: Labels) => kindOf(route, method)
  const seconds = (later.at - earlier.at) / 1000
  const rate = (name: string, matches?: Matches) =>
    Math.max(0, sum(later, name, matches) - sum(earlier, name, matches)) / seconds
  const requests = (status: RegExp) =>
    rate("http_requests_total", labels => kindBy(labels) !== "monitoring" && status.test(labels.status ?? ""))
  const timed: Matches = labels => !["monitoring", "stream"].includes(kindBy(labels) ?? "")
  const [p50, p95, p99] = quantiles(earlier, later, "http_request_duration_ms", [0.5, 0.95, 0.99], timed)
  const [commitP99] = quantiles(earlier, later, "store_commit_duration_ms", [0.99])
  return {
    succeeded: requests(/^[123]/),
    refused: requests(/^4/),
    failed: requests(/^(?:5|aborted)/),
    p50: p50!,
    p95: p95!,
    p99: p99!,
    reads: rate("http_requests_total", labels => kindBy(labels) === "read"),
    writes: rate("store_commit_writes"),
    commits: rate("store_commits_total"),
    commitP99: commitP99!,
    followers: sum(later, "change_feed_followers"),
    lag: sum(later, "change_feed_lag_changes"),
    connections: sum(later, "http_connections"),
    eventLoop: sum(later, "event_loop_delay_ms"),
    resident: sum(later, "process_resident_memory_bytes"),
    heap: sum(later, "process_heap_used_bytes")
  }
}

const breakerStates: ReadonlyArray<BreakerState> = ["closed", "half-open", "open"]

/** What a reading has of the present alone. */
export const currentOf = (reading: Reading): Current => {
  const size = (...names: ReadonlyArray<string>): number | null => {
    const present = names.filter(name => reading.series.has(name))
    return present.length === 0 ? null : present.reduce((all, name) => all + sum(reading, name), 0)
  }
  return {
    databaseBytes: size("database_file_bytes", "postgres_table_bytes"),
    diskFreeBytes: size("disk_free_bytes"),
    diskSizeBytes: size("disk_size_bytes"),
    breakers: (reading.series.get("circuit_breaker_state") ?? []).map(sample => ({
      name: sample.labels.upstream ?? "",
      state: breakerStates[numberOf(sample)] ?? "closed"
    }))
  }
}
