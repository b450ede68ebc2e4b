import { expect, it } from "vitest"
import { pages } from "../../scripts/docs/configuration.ts"

/** Those that other test files declare in this process. */
const ofTests = /^\| `TEST_\w+` \|.*\n/gm

it("docs/configuration.md lists the variables as they are (npm run docs writes them)", () => {
  const { current, wanted } = pages()
  expect(current).toBe(wanted.replaceAll(ofTests, ""))
  expect(wanted).toContain("| `KV_API_KEY` |")
})
