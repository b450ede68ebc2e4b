/** The findings in docs/reference/performance-gateway.md. */
import { readFileSync, writeFileSync } from "node:fs"
import { Option } from "effect"
import { replaceSection, table } from "../../docs/Markdown.ts"
import { milliseconds, percent, plain } from "../report/Numbers.ts"
import type { Idle } from "./Idle.ts"
import type { Reopened } from "./Reopen.ts"
import type { Streamed } from "./Streaming.ts"

/** All measurements of a run. */
export interface Findings {
  /** Machine, versions and other conditions. */
  readonly conditions: ReadonlyArray<string>
  /** The first of them is the smaller load of the platform, by WebSockets, on one processor. */
  readonly streamed: ReadonlyArray<Streamed>
  /** The first load on an earlier build. */
  readonly before: Option.Option<Streamed>
  readonly idle: Idle
  readonly reopened: ReadonlyArray<Reopened>
}

const page = new URL("../../../docs/reference/performance-gateway.md", import.meta.url)

/** Milliseconds after which a delta is late. A backlog grows to more than that in the time of a measurement. */
const latest = 1000

const whole = (value: number): string => Math.round(value).toLocaleString("en")

const isComplete = ({ faults, received, sent }: Streamed): boolean => faults.length === 0 && received === sent

const verdict = (isMet: boolean): string => (isMet ? "yes" : "**no**")

const ratio = (goal: string, ours: number, theirs: number, unit: string, most: number): ReadonlyArray<string> => [
  goal,
  `${(ours / theirs).toFixed(2)} × (${plain(ours)} of ${plain(theirs)} ${unit})`,
  verdict(ours <= most * theirs)
]

const goals = ({ before, idle, streamed }: Findings): string => {
  const first = streamed[0]!
  const byAgUi = streamed.find(({ load }) => load.agents === "AG-UI")!
  const full = streamed.findLast(({ load }) => load.transport === "WebSocket" && load.processors === "one")!
  const lost = streamed.reduce((sum, { received, sent }) => sum + sent - received, 0)
  const faults = streamed.reduce((sum, { faults }) => sum + faults.length, 0)
  return table(
    ["goal", "measured", "met"],
    [
      [
        "nothing lost, doubled or out of order",
        `${whole(lost)} lost, ${faults} faults`,
        verdict(streamed.every(isComplete))
      ],
      ...Option.toArray(before).flatMap(({ cpuMicros, p99 }) => [
        ratio("processor time of a delta at most half of the earlier build's", first.cpuMicros, cpuMicros, "µs", 0.5),
        ratio("p99 at half the load at most a third of the earlier build's", first.p99, p99, "ms", 1 / 3)
      ]),
      ratio("a delta of an AG-UI agent at most 1.2 × the platform's", byAgUi.cpuMicros, first.cpuMicros, "µs", 1.2),
      [
        `${whole(full.load.turns * full.load.rate)} deltas a second on one processor, none later than 1 s`,
        `${whole(full.perSecond)}, the latest ${milliseconds(full.max)}`,
        verdict(full.max <= latest)
      ],
      ratio("memory of an idle connection at most 2 × ws", idle.connected, idle.peer, "KiB", 2),
      ratio("the same with a session that it follows", idle.following, idle.peer, "KiB", 2)
    ]
  )
}

const row = (streamed: Streamed, remark = ""): ReadonlyArray<string> => {
  const { load } = streamed
  const agents = load.agents === "AG-UI" ? ", agents by AG-UI" : ""
  return [
    `${whole(load.clients)} clients, ${whole(load.turns)} turns at ${load.rate}/s${agents}${remark}`,
    load.transport,
    load.processors,
    whole(streamed.perSecond),
    milliseconds(streamed.p50),
    milliseconds(streamed.p99),
    milliseconds(streamed.p999),
    milliseconds(streamed.max),
    `${plain(streamed.cpuMicros)} µs`,
    percent(streamed.gatewayShare),
    percent(streamed.generatorShare),
    milliseconds(streamed.lateness),
    `${whole(streamed.residentMiB)} MiB`,
    whole(streamed.sent - streamed.received)
  ]
}

const head = [
  "load",
  "by",
  "processors",
  "deltas a second",
  "p50",
  "p99",
  "p99.9",
  "most",
  "CPU for each",
  "gateway's CPU",
  "generator's CPU",
  "generator late by",
  "memory",
  "lost"
]

/** The findings as Markdown. */
export const print = (findings: Findings, date: string): string => {
  const { before, idle, reopened, streamed } = findings
  const [first] = streamed
  const conditions = [
    ...findings.conditions,
    ...(first === undefined
      ? []
      : [`Run of ${date}: ${first.load.seconds} s of each load after ${first.load.warmUpSeconds} s of it.`]),
    ...streamed.flatMap(({ faults }) => faults.map(fault => `Fault: ${fault}.`))
  ]
  return [
    conditions.map(line => `- ${line}`).join("\n"),
    "### Goals",
    goals(findings),
    "### From platform to client",
    table(head, [
      ...streamed.map(each => row(each)),
      ...Option.toArray(before).map(each => row(each, ", the earlier build"))
    ]),
    "### Memory of an idle client",
    table(
      ["client", `KiB each, of ${whole(idle.clients)}`],
      [
        ["connected", plain(idle.connected)],
        ["connected, with a session that it follows", plain(idle.following)],
        ["a WebSocket of `ws` alone", plain(idle.peer)]
      ]
    ),
    "### Opening a session of 20,000 events",
    table(
      ["what is sent", "time", "frames", "bytes"],
      reopened.map(({ bytes, frames, millis, name }) => [name, milliseconds(millis), whole(frames), whole(bytes)])
    )
  ].join("\n\n")
}

/** Writes the findings into the page. */
export const write = (findings: Findings, date: string): void => {
  writeFileSync(page, replaceSection(readFileSync(page, "utf8"), "findings", print(findings, date)))
}
