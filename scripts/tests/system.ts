/**
 * `npm run test:system`: what `npm test` leaves out, the long forms of what it shortens, the suites and the package on
 * other lines of Node, and generated clients. Arguments choose files of the first of these, and then the others do not
 * run.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { root, succeeds, vitest } from "./Run.ts"

const files = process.argv.slice(2)

/** The suites that depend most on Node. */
const ofNode = [
  ...["Storage/Sqlite", "Http", "Process", "service", "Server", "Shutdown", "Cli"],
  ...["Kv/ChangeFeed", "Causeway", "Embed", "Standalone"]
].map(name => `test/${name}`)

/** These suites on a line of Node, and the package with the oldest or the newest peers that it admits. */
const onNode = async (line: number, peers: "lowest" | "newest"): Promise<boolean> => {
  const directory = mkdtempSync(join(tmpdir(), "causeway-node-"))
  const name = `node-${process.platform}-${process.arch}`
  try {
    const install = ["install", "--no-save", "--no-audit", "--no-fund", "--prefix", directory, `${name}@${line}`]
    if (!(await succeeds("npm", install))) return false
    const node = join(directory, "node_modules", name, "bin", "node")
    const suites = await vitest("vitest", ofNode, { node })
    const ofPackage = await vitest("vitest.system", ["test/Package"], { node, env: { PEERS: peers } })
    return suites && ofPackage
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

const steps: ReadonlyArray<readonly [string, () => Promise<boolean>]> = [
  ["System tests", () => vitest("vitest.system", files)],
  ...(files.length > 0
    ? []
    : ([
        ["Node 22, lowest peers", () => onNode(22, "lowest")],
        ["Node 26, newest peers", () => onNode(26, "newest")],
        [
          "Generated clients",
          () => succeeds(process.execPath, ["--import", "tsx", join(root, "test/generators/run.ts")])
        ]
      ] as const))
]

const failed: Array<string> = []
for (const [name, run] of steps) {
  const start = performance.now()
  console.log(`\n==> ${name}`)
  const isGood = await run()
  console.log(`${name}: ${isGood ? "passed" : "FAILED"} after ${Math.round((performance.now() - start) / 1000)} s`)
  if (!isGood) failed.push(name)
}
if (failed.length > 0) {
  console.log(`Failed: ${failed.join(", ")}`)
  process.exitCode = 1
}
