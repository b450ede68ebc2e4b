/** Bar charts as SVG, one panel per comparison, each with its own scale. */
import { type Comparison, of } from "../Findings.ts"
import { micros, plain } from "./Numbers.ts"

const width = 760
const labels = 170
const figures = 230
const barHeight = 18
const titleHeight = 30
const gap = 12

/** Colors for the color-blind (Okabe and Ito). */
const colours = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00"]

const escapes: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }

const escaped = (text: string): string => text.replace(/[&<>"]/g, character => escapes[character]!)

const text = (x: number, y: number, content: string, attributes = ""): string =>
  `<text x="${x}" y="${y}"${attributes === "" ? "" : ` ${attributes}`}>${escaped(content)}</text>`

const panelHeight = ({ series }: Comparison): number => titleHeight + series.length * barHeight + gap

const panel = (comparison: Comparison, top: number, colourOf: (contender: string) => string): string => {
  const { series, title, unit } = comparison
  const values = series.map(one => of(one, ({ perSecond }) => perSecond))
  const most = Math.max(...values)
  const bars = series.map((one, index) => {
    const y = top + titleHeight + index * barHeight
    const length = Math.max(1, (values[index]! / most) * (width - labels - figures))
    const cpu = micros(of(one, ({ cpuMicros }) => cpuMicros))
    return [
      text(labels - 8, y + 12, one.contender, 'text-anchor="end"'),
      `<rect x="${labels}" y="${y}" width="${length.toFixed(1)}" height="${barHeight - 4}" fill="${colourOf(one.contender)}"/>`,
      text(labels + length + 6, y + 12, `${plain(values[index]!)} ${unit}/s, ${cpu} CPU each`)
    ].join("\n")
  })
  return [text(0, top + 20, title, 'font-weight="bold"'), ...bars].join("\n")
}

/** A chart of each contender's throughput. */
export const draw = (comparisons: ReadonlyArray<Comparison>, heading: string): string => {
  const names = [...new Set(comparisons.flatMap(({ series }) => series.map(({ contender }) => contender)))]
  const colourOf = (contender: string): string => colours[names.indexOf(contender) % colours.length]!
  let top = 0
  const panels = comparisons.map(comparison => {
    const drawn = panel(comparison, top, colourOf)
    top += panelHeight(comparison)
    return drawn
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" width="${width}" height="${top}" role="img" font-family="sans-serif" font-size="12">`,
    `<title>${escaped(heading)}</title>`,
    `<rect width="${width}" height="${top}" fill="#ffffff"/>`,
    ...panels,
    "</svg>",
    ""
  ].join("\n")
}
