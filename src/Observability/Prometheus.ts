/**
 * The Prometheus text exposition format 0.0.4.
 */
import type { Sample } from "./Samples.ts"

const metricName = (name: string): string => name.replace(/^[^a-zA-Z_:]/, "_").replace(/[^a-zA-Z0-9_:]/g, "_")

const labelName = (name: string, reserved: string | undefined): string => {
  const clean = name.replace(/^[^a-zA-Z_]/, "_").replace(/[^a-zA-Z0-9_]/g, "_")
  return clean === reserved ? `exported_${clean}` : clean
}

const escapeHelp = (text: string): string => text.replace(/\\/g, "\\\\").replace(/\n/g, "\\n")

const escapeValue = (text: string): string => escapeHelp(text).replace(/"/g, '\\"')

const number = (value: number): string =>
  value === Infinity ? "+Inf" : value === -Infinity ? "-Inf" : Number.isNaN(value) ? "NaN" : String(value)

type Labels = ReadonlyArray<readonly [string, string]>

const labelsOf = (sample: Sample): Labels => {
  const reserved = sample.kind === "histogram" ? "le" : undefined
  // Of labels with equal sanitized names the last one is kept, because duplicates are invalid.
  return [...new Map(Object.entries(sample.labels).map(([name, value]) => [labelName(name, reserved), value]))]
}

const line = (name: string, labels: Labels, value: number): string => {
  const shown = labels.map(([label, text]) => `${label}="${escapeValue(text)}"`).join(",")
  return `${name}${shown === "" ? "" : `{${shown}}`} ${number(value)}`
}

const linesOf = (name: string, sample: Sample): ReadonlyArray<string> => {
  const labels = labelsOf(sample)
  if (sample.kind !== "histogram") return [line(name, labels, sample.value)]
  const { buckets, sum, count } = sample.value
  return [
    ...buckets.map(bucket => line(`${name}_bucket`, [...labels, ["le", number(bucket.le)]], bucket.count)),
    line(`${name}_sum`, labels, sum),
    line(`${name}_count`, labels, count)
  ]
}

/**
 * Renders series, grouped by name under HELP and TYPE. If metrics share a name, series of another kind than the first
 * and series with duplicate labels are omitted, because scrapers refuse both.
 */
export const render = (samples: ReadonlyArray<Sample>): string => {
  const families = new Map<string, { readonly head: Sample; readonly lines: Map<string, ReadonlyArray<string>> }>()
  for (const sample of samples) {
    const name = metricName(sample.name)
    const family = families.get(name) ?? { head: sample, lines: new Map<string, ReadonlyArray<string>>() }
    families.set(name, family)
    const identity = JSON.stringify([...labelsOf(sample)].sort())
    if (sample.kind !== family.head.kind || family.lines.has(identity)) continue
    family.lines.set(identity, linesOf(name, sample))
  }
  return [...families]
    .flatMap(([name, { head, lines }]) => [
      ...(head.description === "" ? [] : [`# HELP ${name} ${escapeHelp(head.description)}`]),
      `# TYPE ${name} ${head.kind}`,
      ...[...lines.values()].flat()
    ])
    .map(text => `${text}\n`)
    .join("")
}
