/** The results of a run. */

/** One measurement of a server under load. */
export interface Sample {
  /** Requests or frames per second. */
  readonly perSecond: number
  /** Latency in milliseconds; absent without requests. */
  readonly p50?: number
  readonly p99?: number
  /** The server's CPU per request or frame, in microseconds. */
  readonly cpuMicros: number
  /** The share of a processor that the server and the load generator used. */
  readonly serverShare: number
  readonly generatorShare: number
  /** Answers other than 2xx. */
  readonly failures: number
}

/** The measurements of one contender, one per round. */
export interface Series {
  readonly contender: string
  readonly samples: ReadonlyArray<Sample>
}

/** Contenders under the same load. */
export interface Comparison {
  readonly name: string
  readonly title: string
  readonly unit: "requests" | "frames"
  readonly series: ReadonlyArray<Series>
}

/** A quantity that was measured several times. */
export interface Quantity {
  readonly name: string
  readonly title: string
  readonly contender: string
  readonly unit: "ms" | "MiB" | "KiB"
  readonly values: ReadonlyArray<number>
}

export interface Findings {
  readonly comparisons: ReadonlyArray<Comparison>
  readonly quantities: ReadonlyArray<Quantity>
  /** Remarks for the reader, such as a contender that could not be started. */
  readonly remarks: ReadonlyArray<string>
}

export const none: Findings = { comparisons: [], quantities: [], remarks: [] }

export const merge = (a: Findings, b: Findings): Findings => ({
  comparisons: [...a.comparisons, ...b.comparisons],
  quantities: [...a.quantities, ...b.quantities],
  remarks: [...new Set([...a.remarks, ...b.remarks])]
})

/** The median; `NaN` without numbers. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  if (sorted.length === 0) return Number.NaN
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** The median over the rounds of one figure of a series. */
export const of = (series: Series, figure: (sample: Sample) => number): number => median(series.samples.map(figure))

/** The ratio of two contenders in each round; other load in a round affects both. */
export const ratios = (
  comparison: Comparison,
  contender: string,
  peer: string,
  figure: (sample: Sample) => number = sample => sample.perSecond
): ReadonlyArray<number> => {
  const ours = comparison.series.find(series => series.contender === contender)?.samples ?? []
  const theirs = comparison.series.find(series => series.contender === peer)?.samples ?? []
  return ours.flatMap((sample, round) => {
    const other = theirs[round]
    return other === undefined ? [] : [figure(sample) / figure(other)]
  })
}
