import { table } from "../../docs/Markdown.ts"
import { type Comparison, type Findings, median, of, type Quantity, ratios } from "../Findings.ts"
import { judge } from "./Goals.ts"
import { micros, milliseconds, percent, plain, range } from "./Numbers.ts"

const rowsOf = (comparison: Comparison): ReadonlyArray<ReadonlyArray<string>> =>
  comparison.series.map((series, index) => {
    const answered = series.samples.every(({ p50 }) => p50 !== undefined)
    const relative =
      index === 0
        ? "1"
        : (() => {
            const values = ratios(comparison, series.contender, comparison.series[0]!.contender)
            return range(median(values), values)
          })()
    return [
      index === 0 ? comparison.title : "",
      series.contender,
      plain(of(series, ({ perSecond }) => perSecond)),
      relative,
      milliseconds(answered ? of(series, ({ p50 }) => p50!) : undefined),
      milliseconds(answered ? of(series, ({ p99 }) => p99!) : undefined),
      micros(of(series, ({ cpuMicros }) => cpuMicros)),
      percent(of(series, ({ serverShare }) => serverShare)),
      percent(of(series, ({ generatorShare }) => generatorShare)),
      String(series.samples.reduce((sum, { failures }) => sum + failures, 0))
    ]
  })

const comparisonHead = [
  "case",
  "server",
  "a second",
  "relative to the first",
  "p50",
  "p99",
  "CPU for each",
  "server's CPU",
  "generator's CPU",
  "not 2xx"
]

/** The measurements of each contender. */
export const comparisons = (all: ReadonlyArray<Comparison>): string => table(comparisonHead, all.flatMap(rowsOf))

const quantityRow = ({ contender, title, unit, values }: Quantity): ReadonlyArray<string> => [
  title,
  contender,
  `${plain(median(values))} ${unit}`,
  values.length < 2 ? "" : `${plain(Math.min(...values))} to ${plain(Math.max(...values))}`
]

export const quantities = (all: ReadonlyArray<Quantity>): string =>
  table(["quantity", "server", "median", "least to most"], all.map(quantityRow))

/** The goals and whether they were met. */
export const goals = (findings: Findings): string =>
  table(
    ["goal", "measured", "met"],
    judge(findings).map(({ goal, isMet, measured }) => [goal, measured, isMet ? "yes" : "**no**"])
  )
