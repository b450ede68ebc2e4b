import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { Metafile } from "esbuild"

/** The directory of the package that a bundled file belongs to. */
const packageOf = (file: string): string | undefined => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]

/** The licenses of the packages that are in bundles, as one text. */
export const licensesOf = (root: string, ...metafiles: ReadonlyArray<Metafile>): string => {
  const outputs = metafiles.flatMap(({ outputs }) => Object.values(outputs))
  const inputs = outputs.flatMap(output => Object.entries(output.inputs))
  const bundled = new Set(inputs.flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 && packageOf(file)) || []))
  const licenses = [...bundled].sort().map(directory => {
    const files = readdirSync(join(root, directory))
    const file = files.find(name => /^licen[cs]e(?:\.|$)/i.test(name))
    const { license, name, version } = JSON.parse(readFileSync(join(root, directory, "package.json"), "utf8"))
    const text = file === undefined ? `License: ${license}` : readFileSync(join(root, directory, file), "utf8")
    return `${name} ${version}\n\n${text.trim()}\n`
  })
  return licenses.join(`\n${"-".repeat(80)}\n\n`)
}
