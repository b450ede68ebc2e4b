/** The findings in docs/reference/performance-gateway.md. */
import { readFileSync, writeFileSync } from "node:fs"
import { replaceSection, table } from "../../docs/Markdown.ts"
import { milliseconds, percent, plain } from "../report/Numbers.ts"
import type { Idle } from "./Idle.ts"
import type { Reopened } from "./Reopen.ts"
import type { Streamed } from "./Streaming.ts"

/** All measurements of a run. */
export interface Findings {
  /** Machine, versions and other conditions. */
  readonly conditions: ReadonlyArray<string>
  readonly streamed: ReadonlyArray<Streamed>
  readonly idle: Idle
  readonly reopened: ReadonlyArray<Reopened>
}

const page = new URL("../../../docs/reference/performance-gateway.md", import.meta.url)

/** Goal of the 99th percentile at half the load, in milliseconds. */
const latencyGoal = 100

/** Goal of the memory of an idle client, in KiB. */
const memoryGoal = 40

const whole = (value: number): string => Math.round(value).toLocaleString("en")

const isComplete = ({ faults, received, sent }: Streamed): boolean => faults.length === 0 && received === sent

const verdict = (isMet: boolean): string => (isMet ? "yes" : "**no**")

const goals = ({ idle, streamed }: Findings): string => {
  const most = Math.max(...streamed.map(({ load }) => load.turns))
  const half = streamed.filter(({ load }) => load.turns < most)
  const slowest = Math.max(...half.map(({ p99 }) => p99))
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
      [
        `p99 from platform to client at half the load at most ${latencyGoal} ms`,
        milliseconds(slowest),
        verdict(slowest <= latencyGoal)
      ],
      [
        `memory of an idle connection at most ${memoryGoal} KiB`,
        `${plain(idle.connected)} KiB; ${plain(idle.following)} KiB with a session that it follows`,
        verdict(idle.connected <= memoryGoal && idle.following <= memoryGoal)
      ]
    ]
  )
}

const row = (streamed: Streamed): ReadonlyArray<string> => {
  const { load } = streamed
  return [
    `${whole(load.clients)} clients, ${whole(load.turns)} turns at ${load.rate}/s${load.agents === "AG-UI" ? ", agents by AG-UI" : ""}`,
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
  const { idle, reopened, streamed } = findings
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
    table(head, streamed.map(row)),
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
