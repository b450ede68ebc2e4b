/** Every block of code of every page is run or checked by a test, or has an excuse. */
import { existsSync, readFileSync } from "node:fs"
import { basename } from "node:path"
import { describe, expect, it } from "vitest"
import { excuses } from "./Excuses.ts"
import { type Fence, fencesOf, pages, root } from "./Page.ts"
import { isOutput } from "./Shell.ts"

/** The test that runs or checks all blocks of a language of a page, unless they have an excuse. */
const runners: ReadonlyArray<readonly [page: string, language: string, test: string]> = [
  ["README.md", "sh", "test/Docs/Readme.system.test.ts"],
  ["README.md", "ts", "test/Gateway/AiSdk/Page.test.ts"],
  ["docs/tutorial.md", "sh", "test/Docs/Tutorial.system.test.ts"],
  ["docs/tutorial.md", "ts", "test/Docs/Tutorial.system.test.ts"],
  ["docs/ag-ui.md", "ts", "test/Gateway/AgUi/Page.test.ts"],
  ["docs/ag-ui-agents.md", "ts", "test/Upstream/AgUiAgent/Page.test.ts"],
  ["docs/ai-sdk.md", "ts", "test/Gateway/AiSdk/Page.test.ts"],
  ["docs/cli.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/cli.md", "json", "test/Docs/Settings.test.ts"],
  ["docs/console.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/console.md", "ts", "test/Docs/Programs.test.ts"],
  ["docs/how-to.md", "nginx", "test/Docs/Settings.test.ts"],
  ["docs/how-to.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/http-api.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/operations.md", "crontab", "test/Docs/Settings.test.ts"],
  ["docs/operations.md", "ini", "test/Docs/Settings.test.ts"],
  ["docs/operations.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/observability.md", "json", "test/Docs/Settings.test.ts"],
  ["docs/observability.md", "yaml", "test/Docs/Settings.test.ts"],
  ["docs/postgresql.md", "sh", "test/Docs/Postgres.system.test.ts"],
  ["docs/postgresql.md", "sql", "test/Docs/Postgres.system.test.ts"],
  ["docs/protocol.md", "json", "test/Gateway/ProtocolPage.test.ts"],
  ["docs/client.md", "ts", "test/Docs/Client.test.ts"],
  ["docs/client.md", "js", "test/Docs/Programs.test.ts"],
  ["docs/sessions-http.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/sessions-http.md", "js", "test/Gateway/HttpSessions/Page.test.ts"],
  ["docs/effect-4.md", "ts", "test/Package/EffectFour.system.test.ts"],
  ["docs/standalone.md", "ts", "test/Docs/Programs.test.ts"],
  ["docs/testing.md", "ts", "test/Docs/Testing.test.ts"],
  ["docs/testing.md", "js", "test/Docs/Programs.test.ts"],
  ...["contract", "embedding", "gateway", "postgresql", "store", "upstream"].map(
    name => [`docs/${name}.md`, "ts", "test/Package/Package.system.test.ts"] as const
  )
]

/** Who runs or checks a block: tests, or reasons why none does. */
const treatmentsOf = (fence: Fence, before: Fence | undefined): ReadonlyArray<string> => {
  const found = excuses.filter(({ page, starts }) => page === fence.page && fence.code.startsWith(starts))
  if (found.length > 0) return found.map(({ reason }) => reason)
  // What commands print is compared with it.
  if (isOutput(fence) && before?.language === "sh") return treatmentsOf(before, undefined)
  return runners.flatMap(([page, language, test]) => (page === fence.page && language === fence.language ? [test] : []))
}

const fences = pages.flatMap(page => fencesOf(page).map((fence, index, all) => [fence, all[index - 1]] as const))

describe("the blocks of the pages", () => {
  it("are each run or checked, or have an excuse", () => {
    const others = fences.filter(([fence, before]) => treatmentsOf(fence, before).length !== 1)
    expect(others.map(([{ language, line, page }]) => `${page}:${line} ${language}`)).toEqual([])
  })

  it("are what the excuses and the tests are for", () => {
    const idle = excuses.filter(
      ({ page, starts }) =>
        fences.filter(([fence]) => fence.page === page && fence.code.startsWith(starts)).length !== 1
    )
    expect(idle).toEqual([])
    for (const [page, language, test] of runners) {
      expect(
        fences.some(([fence]) => fence.page === page && fence.language === language),
        `${page} ${language}`
      ).toBe(true)
      expect(existsSync(`${root}${test}`), test).toBe(true)
      const source = readFileSync(`${root}${test}`, "utf8")
      expect(source.includes(page) || source.includes(`"${basename(page, ".md")}"`), `${test} names ${page}`).toBe(true)
    }
  })
})
