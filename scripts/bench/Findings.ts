/** What was measured. */

/** One measurement of a server under load. */
export interface Sample {
  /** What was done a second, in the comparison's unit. */
  readonly perSecond: number
  /** Time until the answer, in milliseconds; absent where nothing is asked. */
  readonly p50?: number
  readonly p99?: number
  /** Processor time of the server for each, in microseconds. */
  readonly cpuMicros: number
  /** The share of a processor that the server used, and that the load generator did. */
  readonly serverShare: number
  readonly generatorShare: number
  /** Answers other than 2xx. */
  readonly failures: number
}

/** The measurements of one contender, one a round. */
export interface Series {
  readonly contender: string
  readonly samples: ReadonlyArray<Sample>
}

/** Contenders under the same load, round by round. */
export interface Comparison {
  readonly name: string
  readonly title: string
  readonly unit: "requests" | "frames"
  readonly series: ReadonlyArray<Series>
}

/** A quantity that was measured by itself, some times over. */
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
  /** What a reader must know beside, such as who could not take part. */
  readonly remarks: ReadonlyArray<string>
}

export const none: Findings = { comparisons: [], quantities: [], remarks: [] }

export const merge = (a: Findings, b: Findings): Findings => ({
  comparisons: [...a.comparisons, ...b.comparisons],
  quantities: [...a.quantities, ...b.quantities],
  remarks: [...new Set([...a.remarks, ...b.remarks])]
})

/** The middle of some numbers; `NaN` of none. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  if (sorted.length === 0) return Number.NaN
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** The median over the rounds of one figure of a series. */
export const of = (series: Series, figure: (sample: Sample) => number): number => median(series.samples.map(figure))

/** How one contender did relative to another in each round; what disturbs a round disturbs both. */
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
