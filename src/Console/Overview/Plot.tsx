/** A plot of lines over the last minutes. */
import { useEffect, useRef } from "preact/hooks"
import uPlot from "uplot"
import { isDark } from "../Widgets/Shell.tsx"

interface Line {
  readonly label: string
  /** The name of a custom property of the style sheet. */
  readonly color: string
  readonly values: ReadonlyArray<number>
}

export interface PlotProps {
  readonly title: string
  readonly hint?: string
  readonly times: ReadonlyArray<number>
  readonly lines: ReadonlyArray<Line>
  readonly format: (value: number) => string
  /** The possible distances between the ticks of the axis; powers of ten without it. */
  readonly steps?: ReadonlyArray<number>
  readonly isFilled?: boolean
}

const height = 132

/** The minimum time range in seconds. */
const minSeconds = 120

const sync = uPlot.sync("overview")

const property = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/** A color for the canvas. Only an element resolves `light-dark()`. */
const resolved = (name: string): string => {
  const probe = document.createElement("span")
  probe.style.color = `var(${name})`
  document.body.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

const translucent = (color: string): string => color.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)")

const optionsOf = ({ format, isFilled, lines, steps }: PlotProps, width: number): uPlot.Options => {
  const axis = { stroke: resolved("--muted"), font: `11px ${property("--sans")}`, ticks: { show: false } }
  const grid = { stroke: resolved("--line"), width: 1 }
  return {
    width,
    height,
    cursor: { sync: { key: sync.key }, points: { size: 6 }, drag: { x: false, y: false } },
    legend: { show: false },
    padding: [8, 24, 0, 0],
    scales: {
      // Before the first figure, the axis ends at the current time.
      x: {
        range: (_, min, max) => {
          const end = max ?? Date.now() / 1000
          return [Math.min(min ?? end, end - minSeconds), end]
        }
      },
      y: { range: (_, __, max) => [0, Number.isFinite(max) && max > 0 ? max * 1.15 : 1] }
    },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 24, values: "{HH}:{mm}:{ss}" },
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
        const stroke = resolved(color)
        return {
          label,
          stroke,
          width: 1.5,
          spanGaps: false,
          points: { show: false },
          ...(isFilled && index === 0 && { fill: translucent(stroke) })
        }
      })
    ]
  }
}

const dataOf = ({ lines, times }: PlotProps): uPlot.AlignedData => [
  times.map(at => at / 1000),
  ...lines.map(({ values }) => values.map(value => (Number.isFinite(value) ? value : null)))
]

export const Plot = (props: PlotProps) => {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const dark = isDark.value

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
  }, [dark])

  useEffect(() => plot.current?.setData(dataOf(props)), [props.times])

  const present = props.lines.map(({ color, label, values }) => ({
    color,
    label,
    shown: props.format(values.at(-1) ?? Number.NaN)
  }))
  const spoken = present.map(({ label, shown }) => `${label} ${shown}`).join(", ")
  return (
    <figure class="panel plot">
      <figcaption>
        <h3 title={props.hint}>{props.title}</h3>
        <ul>
          {present.map(({ color, label, shown }) => (
            <li>
              <i class="swatch" style={{ color: `var(${color})` }} />
              {label} <b>{shown}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={box} class="plot-canvas" role="img" aria-label={`${props.title}: ${spoken}`} />
    </figure>
  )
}
