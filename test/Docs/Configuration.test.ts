import { execFile } from "node:child_process"
import { join } from "node:path"
import { promisify } from "node:util"
import { expect, inject, it } from "vitest"
import { pages } from "../../scripts/docs/configuration.ts"
import type { Variable } from "../../src/base/Setting.ts"

/**
 * Those that a process of its own declares, since other test files declare variables too. Not `execFileSync`: while it
 * blocks, for long on a slow machine, the test runner gets no answer and gives up.
 */
const variables = async (): Promise<ReadonlyArray<Variable>> => {
  const module = (name: string) => JSON.stringify(join(inject("compiled"), "src", name))
  const code = `import { help } from ${module("app/Serve.js")}; import { all } from ${module("base/Setting.js")}
    help(); console.log(JSON.stringify(all()))`
  const args = ["--input-type=module", "--eval", code]
  const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 16 * 1024 * 1024 })
  return JSON.parse(stdout)
}

it("docs/reference/configuration.md lists the variables as they are (npm run docs writes them)", async () => {
  const { current, wanted } = pages(await variables())
  expect(current).toBe(wanted)
  expect(wanted).toContain("| `KV_API_KEY` |")
})
