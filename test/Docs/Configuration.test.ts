import { execFileSync } from "node:child_process"
import { expect, it } from "vitest"
import type { pages } from "../../scripts/docs/configuration.ts"

/** In a process of its own, since other test files declare variables too. */
const inNewProcess = (): ReturnType<typeof pages> => {
  const script = new URL("../../scripts/docs/configuration.ts", import.meta.url).href
  const code = `console.log(JSON.stringify((await import(${JSON.stringify(script)})).pages()))`
  const args = ["--import", "tsx", "--input-type=module", "--eval", code]
  return JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8" }))
}

it("docs/configuration.md lists the variables as they are (npm run docs writes them)", () => {
  const { current, wanted } = inNewProcess()
  expect(current).toBe(wanted)
  expect(wanted).toContain("| `KV_API_KEY` |")
})
