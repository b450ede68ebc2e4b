/** The samples of a node as plots need them: the answers of the service put together, with gaps. */
import { type ByFigure, byFigure, type FigureName, keptMs, type Series } from "../../Operations/Activity/Model.ts"

/** Samples, the oldest first. */
export interface History extends Series {
  /** When the recording began, in epoch milliseconds. */
  readonly since: number
}

/** The samples that are wanted by their times. */
const only = (series: Series, isWanted: (at: number) => boolean): Series => {
  const chosen = series.at.flatMap((at, index) => (isWanted(at) ? [index] : []))
  const picked = <A>(values: ReadonlyArray<A>) => chosen.map(index => values[index]!)
  return { at: picked(series.at), ...byFigure(name => picked(series[name])) }
}

/** Adds samples that are later than those that are known. A node that was set back starts again. */
export const added = (known: History | undefined, since: number, series: Series): History => {
  const last = known?.at.at(-1) ?? 0
  const end = series.at.at(-1) ?? last
  if (known === undefined || end < last) return { ...series, since }
  const isKept = (at: number) => at > end - keptMs
  const [kept, later] = [only(known, isKept), only(series, at => at > last && isKept(at))]
  return { since, at: [...kept.at, ...later.at], ...byFigure(name => [...kept[name], ...later[name]]) }
}

export interface Plotted {
  /** Epoch milliseconds. */
  readonly times: ReadonlyArray<number>
  readonly values: ByFigure<ReadonlyArray<number | null>>
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
  return { times, values: byFigure(name => chosen.map(index => history?.[name][index] ?? null)) }
}

/** The last value of a figure; `NaN` without one. */
export const lastOf = (history: History | undefined, name: FigureName): number => history?.[name].at(-1) ?? Number.NaN
