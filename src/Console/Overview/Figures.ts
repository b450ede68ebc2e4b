/** The plotted figures: the metrics of the service in its two formats, and rates and quantiles between two readings. */

/** A histogram: the sum and the number of its values, and cumulative counts by upper bound (`le`). */
interface Distribution {
  readonly sum: number
  readonly count: number
  readonly buckets: ReadonlyArray<readonly [le: number, count: number]>
}

type Labels = Readonly<Record<string, string>>

/** The value of a series. */
interface Sample<A> {
  readonly labels: Labels
  readonly value: A
}

/** All series at one time, by name. */
export interface Snapshot {
  /** Epoch milliseconds. */
  readonly at: number
  readonly values: ReadonlyMap<string, ReadonlyArray<Sample<number>>>
  readonly distributions: ReadonlyMap<string, ReadonlyArray<Sample<Distribution>>>
}

const push = <A>(map: Map<string, Array<A>>, name: string, item: A): void => {
  const items = map.get(name)
  if (items === undefined) map.set(name, [item])
  else items.push(item)
}

/** Parses the JSON of `/api/metrics`. */
export const fromJson = (text: string, at: number): Snapshot => {
  const values = new Map<string, Array<Sample<number>>>()
  const distributions = new Map<string, Array<Sample<Distribution>>>()
  for (const { kind, labels, name, value } of JSON.parse(text).metrics) {
    if (kind !== "histogram") push(values, name, { labels, value: Number(value) })
    else {
      const { buckets, count, sum } = value
      const read = buckets.map(({ count, le }: { readonly count: number; readonly le: unknown }) => [
        typeof le === "number" ? le : Number.POSITIVE_INFINITY,
        count
      ])
      push(distributions, name, { labels, value: { sum, count, buckets: read } })
    }
  }
  return { at, values, distributions }
}

const line = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/
const label = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g

const unescape = (text: string): string =>
  text.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character))

/** Parses the part of the Prometheus text format that the service uses. */
export const fromPrometheus = (text: string, at: number): Snapshot => {
  const histograms = new Set<string>()
  const values = new Map<string, Array<Sample<number>>>()
  const parts = new Map<string, { labels: Record<string, string>; sum: number; buckets: Array<[number, number]> }>()
  const namesOfParts = new Map<string, string>()
  for (const written of text.split("\n")) {
    const [, histogram] = /^# TYPE (\S+) histogram/.exec(written) ?? []
    if (histogram !== undefined) histograms.add(histogram)
    if (written.startsWith("#")) continue
    const found = line.exec(written)
    if (found === null) continue
    const [, series = "", labelText = "", valueText] = found
    const labels: Record<string, string> = {}
    for (const [, name, value] of labelText.matchAll(label)) labels[name!] = unescape(value!)
    const base = series.replace(/_(?:bucket|sum|count)$/, "")
    if (!histograms.has(base)) {
      push(values, series, { labels, value: Number(valueText) })
      continue
    }
    const { le, ...others } = labels
    const id = `${base}${JSON.stringify(others)}`
    const part = parts.get(id) ?? { labels: others, sum: 0, buckets: [] }
    parts.set(id, part)
    namesOfParts.set(id, base)
    if (series.endsWith("_sum")) part.sum = Number(valueText)
    if (le !== undefined) part.buckets.push([le === "+Inf" ? Number.POSITIVE_INFINITY : Number(le), Number(valueText)])
  }
  const distributions = new Map<string, Array<Sample<Distribution>>>()
  for (const [id, { buckets, labels, sum }] of parts) {
    const count = buckets.at(-1)?.[1] ?? 0
    push(distributions, namesOfParts.get(id)!, { labels, value: { sum, count, buckets } })
  }
  return { at, values, distributions }
}

/** Whether a route is for monitoring, which would hide the requests of users. */
const isMonitoring = (route: string | undefined): boolean =>
  route === undefined || /\/(?:metrics|health|ready)$|\/(?:console|docs)(?:\/|$)/.test(route)

/** Whether the duration of a route means nothing: monitoring, long polls and streams. */
const isUntimed = (route: string | undefined): boolean =>
  isMonitoring(route) || /\/changes(?:\/\w+)?$|\/ws$/.test(route ?? "")

const sum = (snapshot: Snapshot, name: string, matches: (labels: Labels) => boolean = () => true): number =>
  (snapshot.values.get(name) ?? []).reduce((all, { labels, value }) => (matches(labels) ? all + value : all), 0)

const merged = (snapshot: Snapshot, name: string, matches: (labels: Labels) => boolean = () => true): Distribution => {
  const counts = new Map<number, number>()
  let total = 0
  let count = 0
  for (const { labels, value } of snapshot.distributions.get(name) ?? []) {
    if (!matches(labels)) continue
    total += value.sum
    count += value.count
    for (const [le, cumulative] of value.buckets) counts.set(le, (counts.get(le) ?? 0) + cumulative)
  }
  return { sum: total, count, buckets: [...counts].sort(([a], [b]) => a - b) }
}

const minus = (later: Distribution, earlier: Distribution): Distribution => {
  const before = new Map(earlier.buckets)
  return {
    sum: later.sum - earlier.sum,
    count: later.count - earlier.count,
    buckets: later.buckets.map(([le, count]) => [le, count - (before.get(le) ?? 0)] as const)
  }
}

/** A quantile, interpolated within its bucket as Prometheus does it. */
const quantile = ({ buckets, count }: Distribution, q: number): number => {
  if (count <= 0) return Number.NaN
  const rank = q * count
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
  const rate = (name: string, matches?: (labels: Labels) => boolean) =>
    Math.max(0, sum(later, name, matches) - sum(earlier, name, matches)) / seconds
  const requests = (status: RegExp) =>
    rate("http_requests_total", labels => !isMonitoring(labels.route) && status.test(labels.status ?? ""))
  const spread = (name: string, matches?: (labels: Labels) => boolean) =>
    minus(merged(later, name, matches), merged(earlier, name, matches))
  const latency = spread("http_request_duration_ms", labels => !isUntimed(labels.route))
  return {
    at: later.at,
    succeeded: requests(/^[123]/),
    refused: requests(/^4/),
    failed: requests(/^(?:5|aborted)/),
    p50: quantile(latency, 0.5),
    p95: quantile(latency, 0.95),
    p99: quantile(latency, 0.99),
    writes: Math.max(0, spread("store_commit_writes").sum) / seconds,
    commits: rate("store_commits_total"),
    commitP99: quantile(spread("store_commit_duration_ms"), 0.99),
    followers: sum(later, "change_feed_followers"),
    lag: sum(later, "change_feed_lag_changes"),
    connections: sum(later, "http_connections"),
    eventLoop: sum(later, "event_loop_delay_ms"),
    resident: sum(later, "process_resident_memory_bytes"),
    heap: sum(later, "process_heap_used_bytes")
  }
}

/** The figures at one time, in epoch milliseconds. */
export type Figures = ReturnType<typeof between>

/** The state of a circuit breaker. */
export type BreakerState = "closed" | "half-open" | "open"

const breakerStates: ReadonlyArray<BreakerState> = ["closed", "half-open", "open"]

/** The circuit breaker of each upstream service. */
export const breakersOf = (
  snapshot: Snapshot
): ReadonlyArray<{ readonly name: string; readonly state: BreakerState }> =>
  (snapshot.values.get("circuit_breaker_state") ?? []).map(({ labels, value }) => ({
    name: labels.upstream ?? "",
    state: breakerStates[value] ?? "closed"
  }))
