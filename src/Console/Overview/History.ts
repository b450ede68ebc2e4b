/** The samples of a node as plots need them: the answers of the service put together, with gaps. */
import { type FigureName, figureNames, keptMs, type Series } from "../../Operations/Activity/Model.ts"

/** Samples, the oldest first. */
export interface History extends Series {
  /** When the recording began, in epoch milliseconds. */
  readonly since: number
}

const indices = (series: Series, isWanted: (at: number) => boolean): ReadonlyArray<number> =>
  series.at.flatMap((at, index) => (isWanted(at) ? [index] : []))

const picked = (series: Series, chosen: ReadonlyArray<number>): Series =>
  Object.fromEntries(
    (["at", ...figureNames] as const).map(name => [name, chosen.map(index => series[name][index] ?? null)])
  ) as unknown as Series

const joined = (earlier: Series, later: Series): Series =>
  Object.fromEntries(
    (["at", ...figureNames] as const).map(name => [name, [...earlier[name], ...later[name]]])
  ) as unknown as Series

/** Adds samples that are later than those that are known. A node that was set back starts again. */
export const added = (known: History | undefined, since: number, series: Series): History => {
  const last = known?.at.at(-1) ?? 0
  const end = series.at.at(-1) ?? last
  if (known === undefined || end < last) return { ...series, since }
  const whole = joined(
    known,
    picked(
      series,
      indices(series, at => at > last)
    )
  )
  return {
    ...picked(
      whole,
      indices(whole, at => at > end - keptMs)
    ),
    since
  }
}

export interface Plotted {
  /** Epoch milliseconds. */
  readonly times: ReadonlyArray<number>
  readonly values: Readonly<Record<FigureName, ReadonlyArray<number | null>>>
}

/**
 * The samples of a range of time. Where samples are missing, as after a restart, and at both ends of the range, there is
 * a point without values, so that no line is drawn.
 */
export const plotted = (history: History | undefined, from: number, to: number, gapMs: number): Plotted => {
  const times: Array<number> = [from]
  const chosen: Array<number> = [-1]
  for (const [index, at] of (history?.at ?? []).entries()) {
    if (at <= from || at >= to) continue
    if (at - times.at(-1)! > gapMs && chosen.at(-1) !== -1) {
      times.push(times.at(-1)! + 1)
      chosen.push(-1)
    }
    times.push(at)
    chosen.push(index)
  }
  times.push(to)
  chosen.push(-1)
  const values = Object.fromEntries(
    figureNames.map(name => [name, chosen.map(index => history?.[name][index] ?? null)])
  ) as unknown as Plotted["values"]
  return { times, values }
}

/** The last value of a figure; `NaN` without one. */
export const lastOf = (history: History | undefined, name: FigureName): number => history?.[name].at(-1) ?? Number.NaN
