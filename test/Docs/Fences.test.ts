/** Every block of code of every page is run or checked by a test, or has an excuse. */
import { existsSync, readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { excuses } from "./Excuses.ts"
import { type Fence, fencesOf, pages, root } from "./Page.ts"
import { isOutput } from "./Shell.ts"

/** The test that runs or checks all blocks of a language of a page, unless they have an excuse. */
const runners: ReadonlyArray<readonly [page: string, language: string, test: string]> = [
  ["README.md", "sh", "test/Docs/Readme.system.test.ts"],
  ["README.md", "ts", "test/Gateway/AiSdk/Page.test.ts"],
  ["docs/start/tutorial.md", "sh", "test/Docs/Tutorial.system.test.ts"],
  ["docs/start/tutorial.md", "ts", "test/Docs/Tutorial.system.test.ts"],
  ["docs/use/ag-ui.md", "ts", "test/Gateway/AgUi/Page.test.ts"],
  ["docs/use/ag-ui-agents.md", "ts", "test/Upstream/AgUiAgent/Page.test.ts"],
  ["docs/use/ai-sdk.md", "ts", "test/Gateway/AiSdk/Page.test.ts"],
  ["docs/use/cli.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/use/cli.md", "json", "test/Docs/Settings.test.ts"],
  ["docs/operate/console.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/operate/deployment.md", "sh", "test/Docs/Readme.system.test.ts"],
  ["docs/operate/console.md", "ts", "test/Docs/Programs.test.ts"],
  ["docs/use/how-to.md", "nginx", "test/Docs/Settings.test.ts"],
  ["docs/use/how-to.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/reference/http-api.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/operate/operations.md", "crontab", "test/Docs/Settings.test.ts"],
  ["docs/operate/operations.md", "ini", "test/Docs/Settings.test.ts"],
  ["docs/operate/operations.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/operate/observability.md", "json", "test/Docs/Settings.test.ts"],
  ["docs/operate/observability.md", "yaml", "test/Docs/Settings.test.ts"],
  ["docs/operate/postgresql.md", "sh", "test/Docs/Postgres.system.test.ts"],
  ["docs/operate/postgresql.md", "sql", "test/Docs/Postgres.system.test.ts"],
  ["docs/reference/protocol.md", "json", "test/Gateway/ProtocolPage.test.ts"],
  ["docs/use/client.md", "ts", "test/Docs/Client.test.ts"],
  ["docs/use/client.md", "js", "test/Docs/Programs.test.ts"],
  ["docs/use/sessions-http.md", "sh", "test/Docs/Commands.system.test.ts"],
  ["docs/use/sessions-http.md", "js", "test/Gateway/HttpSessions/Page.test.ts"],
  ["docs/embed/effect-4.md", "ts", "test/Package/EffectFour.system.test.ts"],
  ["docs/embed/standalone.md", "ts", "test/Docs/Programs.test.ts"],
  ["docs/embed/testing.md", "ts", "test/Docs/Testing.test.ts"],
  ["docs/embed/testing.md", "js", "test/Docs/Programs.test.ts"],
  ...["embed/contract", "embed/embedding", "embed/gateway", "embed/store", "embed/upstream", "operate/postgresql"].map(
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
      expect(
        source.includes(page) || source.includes(`"${page.slice("docs/".length, -".md".length)}"`),
        `${test} names ${page}`
      ).toBe(true)
    }
  })
})
