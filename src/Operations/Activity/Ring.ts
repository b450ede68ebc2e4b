/** The samples of the last hour, in memory of a fixed size. */
import { byFigure, type Figures, figureNames, intervalMs, keptMs, type Series } from "./Model.ts"

/** The numbers of a sample: its time and its figures. */
const width = 1 + figureNames.length

/** A number with four digits, or null. */
const shortened = (value: number): number | null => (Number.isFinite(value) ? Number(value.toPrecision(4)) : null)

/** The mean of the values that are numbers. */
const mean = (values: ReadonlyArray<number>): number => {
  const known = values.filter(Number.isFinite)
  return known.reduce((sum, value) => sum + value, 0) / known.length
}

/** A ring of samples. The oldest one is overwritten. */
export class Ring {
  readonly #numbers: Float64Array
  #next = 0
  #size = 0

  constructor(private readonly capacity = keptMs / intervalMs) {
    this.#numbers = new Float64Array(capacity * width)
  }

  /** The bytes of its memory. */
  get bytes(): number {
    return this.#numbers.byteLength
  }

  /** Adds a sample. If the clock was set back, the earlier samples are dropped: times would not be in order. */
  add(at: number, figures: Figures): void {
    if (this.#size > 0 && at <= this.#timeOf(this.#size - 1)) this.#size = 0
    this.#numbers.set([at, ...figureNames.map(name => figures[name])], this.#next * width)
    this.#next = (this.#next + 1) % this.capacity
    this.#size = Math.min(this.#size + 1, this.capacity)
  }

  /**
   * The samples after a time, the oldest first. More than `most` are thinned out: each is then the mean of several that
   * follow each other.
   */
  after(at: number, most: number): Series {
    let first = 0
    while (first < this.#size && this.#timeOf(first) <= at) first++
    const step = Math.max(1, Math.ceil((this.#size - first) / Math.max(1, most)))
    const groups = Array.from({ length: Math.ceil((this.#size - first) / step) }, (_, group) => {
      const start = first + group * step
      return Array.from({ length: Math.min(step, this.#size - start) }, (_, index) => this.#offsetOf(start + index))
    })
    const valuesOf = (index: number) =>
      groups.map(offsets => shortened(mean(offsets.map(offset => this.#numbers[offset + index]!))))
    const times = groups.map(offsets => this.#numbers[offsets.at(-1)!]!)
    return { at: times, ...byFigure((_, index) => valuesOf(index + 1)) }
  }

  #offsetOf(index: number): number {
    return ((this.#next - this.#size + index + this.capacity) % this.capacity) * width
  }

  #timeOf(index: number): number {
    return this.#numbers[this.#offsetOf(index)]!
  }
}
