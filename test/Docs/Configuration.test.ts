import { expect, it } from "vitest"
import { pages } from "../../scripts/docs/configuration.ts"

it("docs/configuration.md lists the variables as they are (npm run docs writes them)", () => {
  const { current, wanted } = pages()
  expect(current).toBe(wanted)
  expect(wanted).toContain("| `KV_API_KEY` |")
})
