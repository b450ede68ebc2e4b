/** The findings in docs/reference/performance.md. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { replaceSection } from "../../docs/Markdown.ts"
import type { Findings } from "../Findings.ts"
import type { PlanShape } from "../Plan.ts"
import * as Plot from "./Plot.ts"
import * as Tables from "./Tables.ts"

const page = new URL("../../../docs/reference/performance.md", import.meta.url)
const drawings = new URL("../../../docs/reference/performance/", import.meta.url)

const isGrowth = ({ name }: { readonly name: string }): boolean => name.startsWith("growth-")

const list = (lines: ReadonlyArray<string>): string => lines.map(line => `- ${line}`).join("\n")

const conditions = ({ entries, rounds, seconds, warmUpSeconds }: PlanShape, date: string) => [
  `Run of ${date}. Rounds: ${rounds}, of ${seconds} s each, after ${warmUpSeconds} s of load. The large store has ${entries.toLocaleString("en")} entries.`
]

const section = (title: string, isWanted: boolean, ...parts: ReadonlyArray<string>): ReadonlyArray<string> =>
  isWanted ? [`### ${title}`, ...parts] : []

/** The findings as Markdown. */
export const print = (findings: Findings, plan: PlanShape, date: string, withPlots: boolean): string => {
  const peers = findings.comparisons.filter(comparison => !isGrowth(comparison))
  const growth = findings.comparisons.filter(isGrowth)
  const plot = (file: string, about: string) => (withPlots ? [`![${about}](performance/${file})`] : [])
  return [
    list([...findings.remarks, ...conditions(plan, date)]),
    ...section("Goals", true, Tables.goals(findings)),
    ...section("Compared with peers", peers.length > 0, ...plot("peers.svg", "Throughput"), Tables.comparisons(peers)),
    ...section("With growth", growth.length > 0, ...plot("growth.svg", "Growth"), Tables.comparisons(growth)),
    ...section("Start and memory", findings.quantities.length > 0, Tables.quantities(findings.quantities))
  ].join("\n\n")
}

/** Writes the findings of a full run into the page, and draws the plots. */
export const write = (findings: Findings, plan: PlanShape, date: string): void => {
  writeFileSync(page, replaceSection(readFileSync(page, "utf8"), "findings", print(findings, plan, date, true)))
  mkdirSync(drawings, { recursive: true })
  const draw = (file: string, heading: string, growth: boolean) =>
    writeFileSync(
      new URL(file, drawings),
      Plot.draw(
        findings.comparisons.filter(comparison => isGrowth(comparison) === growth),
        heading
      )
    )
  draw("peers.svg", "What each server does a second", false)
  draw("growth.svg", "What the service does a second on a small and a large store", true)
}
