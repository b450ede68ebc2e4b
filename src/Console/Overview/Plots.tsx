/** The plots of the last minutes of one node. */
import { signal } from "@preact/signals"
import { useMemo } from "preact/hooks"
import type { FigureName } from "../../Operations/Activity/Model.ts"
import { cutMiddle } from "../Widgets/Names.tsx"
import { bytes, dateAndTime, millis, short } from "../Widgets/Text.ts"
import { activity, chosenNode, histories, plottedNode } from "./Activity.ts"
import { Dated } from "./Dated.tsx"
import { type History, lastOf, plotted } from "./History.ts"
import { Plot, type PlotProps } from "./Plot.tsx"

const perSecond = (value: number): string => `${short(value)}/s`

const labels: Readonly<Record<string, string>> = {
  refused: "refused (4xx)",
  commitP99: "commit p99",
  eventLoop: "p99",
  heap: "heap in use"
}

interface Described extends Omit<PlotProps, "lines" | "times" | "from" | "to"> {
  /** The figures, with the numbers of their colors. */
  readonly colors: Partial<Record<FigureName, number>>
}

const plots: ReadonlyArray<Described> = [
  {
    ...{ title: "Requests", hint: "Excluding probes, scrapes and pages", format: perSecond, isFilled: true },
    colors: { succeeded: 1, refused: 3, failed: 4 }
  },
  {
    ...{ title: "Latency", hint: "Excluding long polls and streams", format: millis },
    colors: { p50: 1, p95: 2, p99: 3, commitP99: 4 }
  },
  {
    ...{ title: "Throughput", hint: "Writes are committed in groups", format: perSecond },
    colors: { reads: 2, writes: 1, commits: 3 }
  },
  {
    ...{ title: "Change feed", hint: "Followers, and changes not yet sent to the slowest WebSocket", format: short },
    colors: { followers: 1, lag: 3, connections: 2 }
  },
  {
    ...{ title: "Event loop delay", hint: "99th percentile of the last ten seconds", format: millis, isFilled: true },
    colors: { eventLoop: 2 }
  },
  {
    ...{ title: "Memory", format: bytes, isFilled: true },
    steps: Array.from({ length: 20 }, (_, power) => 2 ** (20 + power)),
    colors: { resident: 1, heap: 2 }
  }
]

/** The ranges in minutes. */
const ranges = { "5": "5 min", "15": "15 min", "60": "hour" } as const

const range = signal<keyof typeof ranges>("60")

/** Samples that are further apart have a gap between them, in intervals. */
const gap = 2.5

const Choices = () => {
  const nodes = activity.value?.value.nodes ?? []
  return (
    <div class="plot-choices">
      <h2>Last {ranges[range.value]}</h2>
      {nodes.length > 1 && (
        <select
          aria-label="Node"
          value={plottedNode.value?.id}
          onChange={event => {
            chosenNode.value = event.currentTarget.value
          }}
        >
          {nodes.map(({ id }, index) => (
            <option value={id}>
              node {cutMiddle(id, 16)}
              {index === 0 ? ", which answers" : ""}
            </option>
          ))}
        </select>
      )}
      <span class="button-row" role="group" aria-label="Range">
        {Object.entries(ranges).map(([minutes, title]) => (
          <button
            type="button"
            class="button small"
            aria-pressed={range.value === minutes}
            onClick={() => {
              range.value = minutes as keyof typeof ranges
            }}
          >
            {title === ranges["60"] ? "1 hour" : title}
          </button>
        ))}
      </span>
    </div>
  )
}

/** When the recording began, if that is within the range. The page may have the samples of an earlier run. */
const Since = ({ from, history }: { readonly history: History | undefined; readonly from: number }) =>
  history === undefined || history.since <= from ? null : (
    <p class="muted plot-note">
      The service has started at {dateAndTime(history.since)} and{" "}
      {(history.at[0] ?? history.since) < history.since
        ? "keeps no samples of its earlier run, which this page still has."
        : "has no earlier samples."}
    </p>
  )

export const Plots = () => {
  const found = activity.value?.value
  const isSilent = plottedNode.value?.isAnswering === false
  const history = histories.value.get(plottedNode.value?.id ?? "")
  const to = Math.max((history?.at.at(-1) ?? 0) + 1, isSilent ? 0 : (found?.at ?? Date.now()))
  const from = to - Number(range.value) * 60_000
  const { times, values } = useMemo(
    () => plotted(history, from, to, (found?.intervalMs ?? 5000) * gap),
    [history, from, to]
  )
  // A credential that is limited to a tenant gets nothing of nodes.
  if (found?.nodes.length === 0) return null
  return (
    <Dated of={activity.value} isOld={isSilent} class="plots-section" label="Activity">
      <Choices />
      <Since history={history} from={from} />
      <div class="plots">
        {plots.map(({ colors, ...plot }) => (
          <Plot
            {...plot}
            {...{ from, to, times }}
            lines={Object.entries(colors).map(([name, color]) => ({
              label: labels[name] ?? name,
              color,
              values: values[name as FigureName],
              present: lastOf(history, name as FigureName)
            }))}
          />
        ))}
      </div>
    </Dated>
  )
}
