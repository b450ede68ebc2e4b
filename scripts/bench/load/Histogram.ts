/** Each power of two has `steps` buckets, so that the error of a quantile is less than 1 %. */
const stepBits = 7
const steps = 1 << stepBits

/** The longest time that is counted, in microseconds: about 19 hours. */
const longest = 2 ** 36

const indexOf = (micros: number): number => {
  if (micros < steps) return micros
  const exponent = Math.floor(Math.log2(micros)) - stepBits
  return exponent * steps + Math.floor(micros / 2 ** exponent)
}

/** The middle of a bucket. */
const valueAt = (index: number): number => {
  if (index < 2 * steps) return index
  const exponent = Math.floor(index / steps) - 1
  return (index - exponent * steps + 0.5) * 2 ** exponent
}

/** A histogram with logarithmic buckets, like HdrHistogram. Its size is constant. */
export class Histogram {
  private readonly counts = new Float64Array(indexOf(longest) + 1)
  private total = 0

  /** Counts a time in milliseconds. */
  record(millis: number): void {
    const micros = Math.min(longest, Math.max(0, Math.round(millis * 1000)))
    this.counts[indexOf(micros)]! += 1
    this.total++
  }

  /** Adds the counts of another histogram. */
  add(other: Histogram): void {
    for (const [index, count] of other.counts.entries()) this.counts[index]! += count
    this.total += other.total
  }

  /** A quantile (0 to 1) in milliseconds; `NaN` without times. */
  quantile(share: number): number {
    if (this.total === 0) return Number.NaN
    let left = Math.max(1, Math.ceil(share * this.total))
    for (let index = 0; index < this.counts.length; index++) {
      left -= this.counts[index]!
      if (left <= 0) return valueAt(index) / 1000
    }
    return longest / 1000
  }
}
