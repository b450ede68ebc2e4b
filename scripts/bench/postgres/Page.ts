/** The findings in docs/reference/performance-postgresql.md. */
import { readFileSync, writeFileSync } from "node:fs"
import { replaceSection, table } from "../../docs/Markdown.ts"
import { median } from "../Findings.ts"
import type { PlanShape } from "../Plan.ts"
import { micros, milliseconds, percent, plain, range } from "../report/Numbers.ts"
import * as Contenders from "./Contenders.ts"
import type { Comparison, Growth, Sample, Series } from "./Measure.ts"
import type { WakeUps } from "./WakeUps.ts"

export interface Findings {
  readonly conditions: ReadonlyArray<string>
  readonly put: Comparison
  /** The same with more connections, without the peer. */
  readonly putOfMany: Comparison
  readonly get: Comparison
  readonly growth: ReadonlyArray<Growth>
  readonly wakeUps: ReadonlyArray<WakeUps>
}

const page = new URL("../../../docs/reference/performance-postgresql.md", import.meta.url)

const of = ({ samples }: Series, figure: (sample: Sample) => number): number => median(samples.map(figure))

const rate = ({ perSecond }: Sample): number => perSecond

/** Of the servers and PostgreSQL. */
const processorTime = ({ databaseMicros, serverMicros }: Sample): number => serverMicros + databaseMicros

/** The ratio to another group in each round. */
const ratios = (series: Series, to: Series, figure = rate): ReadonlyArray<number> =>
  series.samples.map((sample, round) => figure(sample) / figure(to.samples[round]!))

const find = ({ series }: Comparison, { name }: Contenders.Kind): Series => series.find(one => one.name === name)!

const goal = (text: string, comparison: Comparison, kind: Contenders.Kind, to: Contenders.Kind, least: number) => {
  const values = ratios(find(comparison, kind), find(comparison, to))
  const middle = median(values)
  return [text, range(middle, values), middle >= least ? "yes" : "**no**"]
}

const costGoal = (what: string, comparison: Comparison) => {
  const values = ratios(find(comparison, Contenders.three), find(comparison, Contenders.two), processorTime)
  const middle = median(values)
  const text = `${what}, three nodes: processor time of all at most 1.1 × two`
  return [text, range(middle, values), middle <= 1.1 ? "yes" : "**no**"]
}

/** Goal for the delay of an answered write at a follower on another node, in milliseconds. */
const wakeUpGoal = 250

const wakeUpRow = (wakeUps: ReadonlyArray<WakeUps>): ReadonlyArray<string> => [
  `a follower on another node has a write within ${wakeUpGoal} ms, idle and under load`,
  `${wakeUps.map(({ most }) => milliseconds(most)).join(" and ")} at most`,
  wakeUps.every(({ most }) => most <= wakeUpGoal) ? "yes" : "**no**"
]

const goals = ({ get, put, putOfMany, wakeUps }: Findings): string =>
  table(
    ["goal", "measured", "met"],
    [
      goal("PUT, two nodes: at least 12 × fastify + pg", put, Contenders.two, Contenders.peer, 12),
      goal("GET, two nodes: at least 1.8 × fastify + pg", get, Contenders.two, Contenders.peer, 1.8),
      costGoal("PUT", put),
      costGoal("PUT with four times the connections", putOfMany),
      costGoal("GET", get),
      wakeUpRow(wakeUps)
    ]
  )

const rows = ({ series, title }: Comparison): ReadonlyArray<ReadonlyArray<string>> =>
  series.map((one, index) => {
    const values = ratios(one, series[0]!)
    return [
      index === 0 ? title : "",
      one.name,
      plain(of(one, rate)),
      index === 0 ? "1" : range(median(values), values),
      milliseconds(of(one, ({ p50 }) => p50)),
      milliseconds(of(one, ({ p99 }) => p99)),
      micros(of(one, ({ serverMicros }) => serverMicros)),
      micros(of(one, ({ databaseMicros }) => databaseMicros)),
      percent(of(one, ({ generatorShare }) => generatorShare)),
      String(one.samples.reduce((sum, { failures }) => sum + failures, 0))
    ]
  })

const comparisonHead = [
  "case",
  "servers",
  "a second",
  "relative to the first",
  "p50",
  "p99",
  "CPU of the servers for each",
  "CPU of PostgreSQL for each",
  "generator's CPU",
  "not 2xx"
]

const growthHead = ["connections", "PUT a second", "commits a second", "PUTs in a commit", "p50", "p99"]

const growthRow = ({ commitsPerSecond, connections, p50, p99, perSecond }: Growth): ReadonlyArray<string> => [
  String(connections),
  plain(perSecond),
  plain(commitsPerSecond),
  plain(perSecond / commitsPerSecond),
  milliseconds(p50),
  milliseconds(p99)
]

const wakeUpsHead = ["load", "writes", "p50", "p99", "most"]

const wakeUpsRow = ({ connections, most, p50, p99, writes }: WakeUps): ReadonlyArray<string> => [
  connections === 0 ? "none" : `PUT, ${connections} connections`,
  String(writes),
  milliseconds(p50),
  milliseconds(p99),
  milliseconds(most)
]

const list = (lines: ReadonlyArray<string>): string => lines.map(line => `- ${line}`).join("\n")

/** The findings as Markdown. */
export const print = (findings: Findings, { rounds, seconds, warmUpSeconds }: PlanShape, date: string): string =>
  [
    list([
      ...findings.conditions,
      `Run of ${date}. Rounds: ${rounds}, of ${seconds} s each, after ${warmUpSeconds} s of load.`
    ]),
    "### Goals",
    goals(findings),
    "### Compared with the peer",
    table(comparisonHead, [...rows(findings.put), ...rows(findings.putOfMany), ...rows(findings.get)]),
    "### Commits and the writes that share them, two nodes",
    table(growthHead, findings.growth.map(growthRow)),
    "### Wake-ups of followers on another node, two nodes",
    "The time from the answer of a write on one node until a WebSocket on the other one has it; 0 where it was there before the answer. The writes come one after the other, with random pauses of up to 20 ms. The WebSocket follows their namespace alone.",
    table(wakeUpsHead, findings.wakeUps.map(wakeUpsRow))
  ].join("\n\n")

/** Writes the findings into the page. */
export const write = (findings: Findings, plan: PlanShape, date: string): void =>
  writeFileSync(page, replaceSection(readFileSync(page, "utf8"), "findings", print(findings, plan, date)))
