/** A plot of lines over the last minutes. */
import { useEffect, useRef } from "preact/hooks"
import uPlot from "uplot"
import { hasForcedColors, isDark } from "../Widgets/Shell.tsx"

interface Line {
  readonly label: string
  /** The number of its color. */
  readonly color: number
  readonly values: ReadonlyArray<number | null>
  /** The last value. */
  readonly present: number
}

export interface PlotProps {
  readonly title: string
  readonly hint?: string
  /** Epoch milliseconds. */
  readonly times: ReadonlyArray<number>
  readonly from: number
  readonly to: number
  readonly lines: ReadonlyArray<Line>
  readonly format: (value: number) => string
  /** The possible distances between the ticks of the axis; powers of ten without it. */
  readonly steps?: ReadonlyArray<number>
  readonly isFilled?: boolean
}

const height = 132

const sync = uPlot.sync("overview")

const property = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/** A color for the canvas. Only an element resolves `light-dark()`. */
const resolved = (color: string): string => {
  const probe = document.createElement("span")
  probe.style.color = color
  document.body.append(probe)
  const found = getComputedStyle(probe).color
  probe.remove()
  return found
}

const translucent = (color: string): string => color.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)")

/** With forced colors, lines differ in their strokes, as the legend shows them. */
const forced = [
  {},
  { color: "CanvasText" },
  { color: "CanvasText", dash: [6, 4] },
  { color: "LinkText" },
  { color: "LinkText", dash: [2, 3] }
]

const strokeOf = (color: number) => (hasForcedColors.peek() ? forced[color]! : { color: `var(--series-${color})` })

/** The indices of the values without neighbors. */
const isolated: uPlot.Series.Points.Filter = (plot, series) => {
  const values = plot.data[series]!
  return Array.from(values.keys()).filter(
    index => values[index] != null && values[index - 1] == null && values[index + 1] == null
  )
}

const optionsOf = ({ format, isFilled, lines, steps }: PlotProps, width: number): uPlot.Options => {
  const axis = { stroke: resolved("var(--muted)"), font: `11px ${property("--sans")}`, ticks: { show: false } }
  const grid = { stroke: resolved("var(--line)"), width: 1 }
  return {
    width,
    height,
    cursor: { sync: { key: sync.key }, points: { size: 6 }, drag: { x: false, y: false } },
    legend: { show: false },
    padding: [8, 24, 0, 0],
    scales: {
      // The data have a point at both ends.
      x: { range: (_, min, max) => [min, max] },
      y: { range: (_, __, max) => [0, Number.isFinite(max) && max > 0 ? max * 1.15 : 1] }
    },
    axes: [
      { ...axis, grid: { show: false }, space: 60, size: 24, values: "{HH}:{mm}" },
      {
        ...axis,
        ...(steps && { incrs: [...steps] }),
        grid,
        space: 34,
        size: 56,
        values: (_, splits) => splits.map(format)
      }
    ],
    series: [
      {},
      ...lines.map(({ color, label }, index) => {
        const { color: name = "", ...dash } = strokeOf(color) as { readonly color?: string }
        const stroke = resolved(name)
        return {
          label,
          stroke,
          width: 1.5,
          spanGaps: false,
          // A sample without neighbors would not be seen, as a line needs two.
          points: { show: true, size: 3, fill: stroke, filter: isolated },
          ...dash,
          ...(isFilled && index === 0 && { fill: translucent(stroke) })
        }
      })
    ]
  }
}

const dataOf = ({ lines, times }: PlotProps): uPlot.AlignedData => [
  times.map(at => at / 1000),
  ...lines.map(({ values }) => [...values])
]

export const Plot = (props: PlotProps) => {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const dark = isDark.value
  const isForced = hasForcedColors.value

  useEffect(() => {
    const element = box.current!
    const made = new uPlot(optionsOf(props, element.clientWidth), dataOf(props), element)
    plot.current = made
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      made.destroy()
    }
  }, [dark, isForced])

  useEffect(() => plot.current?.setData(dataOf(props)), [props.times])

  const present = props.lines.map(({ color, label, present }) => ({ color, label, shown: props.format(present) }))
  const spoken = present.map(({ label, shown }) => `${label} ${shown}`).join(", ")
  return (
    <figure class="panel plot">
      <figcaption>
        <h3 title={props.hint}>{props.title}</h3>
        <ul>
          {present.map(({ color, label, shown }) => (
            <li>
              <i class={`swatch series-${color}`} />
              {label} <b>{shown}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={box} class="plot-canvas" role="img" aria-label={`${props.title}: ${spoken}`} />
    </figure>
  )
}
