/** Parses the metrics of the service in its two formats. */

/** A histogram: the sum and the number of its values, and cumulative counts by upper bound (`le`). */
export interface Distribution {
  readonly sum: number
  readonly count: number
  readonly buckets: ReadonlyArray<readonly [le: number, count: number]>
}

/** The value of a series. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface DistributionSample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: Distribution
}

/** All series at one time, by name. */
export interface Snapshot {
  /** Epoch milliseconds. */
  readonly at: number
  readonly values: ReadonlyMap<string, ReadonlyArray<Sample>>
  readonly distributions: ReadonlyMap<string, ReadonlyArray<DistributionSample>>
}

const push = <A>(map: Map<string, Array<A>>, name: string, item: A): void => {
  const items = map.get(name)
  if (items === undefined) map.set(name, [item])
  else items.push(item)
}

/** Parses the JSON of `/api/metrics`. */
export const fromJson = (text: string, at: number): Snapshot => {
  const values = new Map<string, Array<Sample>>()
  const distributions = new Map<string, Array<DistributionSample>>()
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
  const values = new Map<string, Array<Sample>>()
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
  const distributions = new Map<string, Array<DistributionSample>>()
  for (const [id, { buckets, labels, sum }] of parts) {
    const count = buckets.at(-1)?.[1] ?? 0
    push(distributions, namesOfParts.get(id)!, { labels, value: { sum, count, buckets } })
  }
  return { at, values, distributions }
}
