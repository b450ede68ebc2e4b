/** The plotted figures: the metrics of the service in its two formats, and rates and quantiles between two readings. */

type Labels = Readonly<Record<string, string>>

type Sample = { readonly labels: Labels; readonly value: number }

/** All series at one time, by name. A histogram has those of Prometheus: `_sum`, and `_bucket` by `le`. */
export interface Snapshot {
  /** Epoch milliseconds. */
  readonly at: number
  readonly values: ReadonlyMap<string, ReadonlyArray<Sample>>
}

const snapshotOf = (
  at: number,
  samples: Iterable<readonly [name: string, labels: Labels, value: unknown]>
): Snapshot => {
  const values = new Map<string, Array<Sample>>()
  for (const [name, labels, value] of samples) {
    const series = values.get(name) ?? []
    values.set(name, series)
    series.push({ labels, value: Number(value) })
  }
  return { at, values }
}

type Metric = { readonly name: string; readonly labels: Labels } & (
  | { readonly kind: "counter" | "gauge"; readonly value: unknown }
  | {
      readonly kind: "histogram"
      readonly value: {
        readonly sum: number
        readonly buckets: ReadonlyArray<{ readonly le: string; readonly count: number }>
      }
    }
)

const samplesOf = ({ labels, name, ...metric }: Metric): ReadonlyArray<readonly [string, Labels, unknown]> =>
  metric.kind !== "histogram"
    ? [[name, labels, metric.value]]
    : [
        [`${name}_sum`, labels, metric.value.sum],
        ...metric.value.buckets.map(({ count, le }) => [`${name}_bucket`, { ...labels, le }, count] as const)
      ]

export const fromJson = (text: string, at: number): Snapshot =>
  snapshotOf(at, JSON.parse(text).metrics.flatMap(samplesOf))

const line = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/gm
const label = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g

const unescape = (text: string): string =>
  text.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character))

/** Parses the part of the Prometheus text format that the service uses. */
export const fromPrometheus = (text: string, at: number): Snapshot =>
  snapshotOf(
    at,
    Array.from(text.matchAll(line), ([, name = "", labels = "", value]) => [
      name,
      Object.fromEntries(Array.from(labels.matchAll(label), ([, key = "", text = ""]) => [key, unescape(text)])),
      value
    ])
  )

/** Whether a route is for monitoring, which would hide the requests of users. */
const isMonitoring = (route: string | undefined): boolean =>
  route === undefined || /\/(?:metrics|health|ready)$|\/(?:console|docs)(?:\/|$)/.test(route)

/** Whether the duration of a route means nothing: monitoring, long polls and streams. */
const isUntimed = (route: string | undefined): boolean =>
  isMonitoring(route) || /\/changes(?:\/\w+)?$|\/ws$/.test(route ?? "")

type Matches = (labels: Labels) => boolean

const sum = ({ values }: Snapshot, name: string, matches: Matches = () => true): number =>
  (values.get(name) ?? []).reduce((all, { labels, value }) => (matches(labels) ? all + value : all), 0)

const boundOf = (le = "+Inf"): number => (le === "+Inf" ? Number.POSITIVE_INFINITY : Number(le))

/** A quantile of a histogram between two readings, interpolated within its bucket as Prometheus does it. */
const quantile = (
  earlier: Snapshot,
  later: Snapshot,
  name: string,
  q: number,
  matches: Matches = () => true
): number => {
  const bounds = new Set((later.values.get(`${name}_bucket`) ?? []).map(({ labels }) => boundOf(labels.le)))
  const countAt = (snapshot: Snapshot, bound: number) =>
    sum(snapshot, `${name}_bucket`, labels => boundOf(labels.le) === bound && matches(labels))
  const buckets = [...bounds].sort((a, b) => a - b).map(le => [le, countAt(later, le) - countAt(earlier, le)] as const)
  const rank = q * (buckets.at(-1)?.[1] ?? 0)
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
}

/** Whether the process was restarted between two readings, which resets its counters. */
export const isRestarted = (earlier: Snapshot, later: Snapshot): boolean =>
  sum(later, "process_uptime_seconds") < sum(earlier, "process_uptime_seconds")

/** The figures between two readings of the same process, at the later time. `NaN` if there was nothing to measure. */
export const between = (earlier: Snapshot, later: Snapshot) => {
  const seconds = (later.at - earlier.at) / 1000
  const rate = (name: string, matches?: Matches) =>
    Math.max(0, sum(later, name, matches) - sum(earlier, name, matches)) / seconds
  const requests = (status: RegExp) =>
    rate("http_requests_total", labels => !isMonitoring(labels.route) && status.test(labels.status ?? ""))
  const latency = (q: number) =>
    quantile(earlier, later, "http_request_duration_ms", q, labels => !isUntimed(labels.route))
  return {
    at: later.at,
    succeeded: requests(/^[123]/),
    refused: requests(/^4/),
    failed: requests(/^(?:5|aborted)/),
    p50: latency(0.5),
    p95: latency(0.95),
    p99: latency(0.99),
    writes: rate("store_commit_writes_sum"),
    commits: rate("store_commits_total"),
    commitP99: quantile(earlier, later, "store_commit_duration_ms", 0.99),
    followers: sum(later, "change_feed_followers"),
    lag: sum(later, "change_feed_lag_changes"),
    connections: sum(later, "http_connections"),
    eventLoop: sum(later, "event_loop_delay_ms"),
    resident: sum(later, "process_resident_memory_bytes"),
    heap: sum(later, "process_heap_used_bytes")
  }
}

export type Figures = ReturnType<typeof between>

export type BreakerState = "closed" | "half-open" | "open"

const breakerStates: ReadonlyArray<BreakerState> = ["closed", "half-open", "open"]

export const breakersOf = (
  snapshot: Snapshot
): ReadonlyArray<{ readonly name: string; readonly state: BreakerState }> =>
  (snapshot.values.get("circuit_breaker_state") ?? []).map(({ labels, value }) => ({
    name: labels.upstream ?? "",
    state: breakerStates[value] ?? "closed"
  }))
