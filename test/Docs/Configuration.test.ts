import { execFile } from "node:child_process"
import { promisify } from "node:util"
import { expect, it } from "vitest"
import type { pages } from "../../scripts/docs/configuration.ts"

/**
 * In a process of its own, since other test files declare variables too. Not `execFileSync`: while it blocks, for long on
 * a slow machine, the test runner gets no answer and gives up.
 */
const inNewProcess = async (): Promise<ReturnType<typeof pages>> => {
  const script = new URL("../../scripts/docs/configuration.ts", import.meta.url).href
  const code = `console.log(JSON.stringify((await import(${JSON.stringify(script)})).pages()))`
  const args = ["--import", "tsx", "--input-type=module", "--eval", code]
  const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 16 * 1024 * 1024 })
  return JSON.parse(stdout)
}

it("docs/reference/configuration.md lists the variables as they are (npm run docs writes them)", async () => {
  const { current, wanted } = await inNewProcess()
  expect(current).toBe(wanted)
  expect(wanted).toContain("| `KV_API_KEY` |")
})
