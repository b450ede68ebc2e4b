/** Problems of a page in a browser. */
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import type { Page } from "playwright-core"

/** Messages of the browser about errors that a test provokes, or about a stopped service. */
const isProvoked = (text: string): boolean =>
  /Failed to load resource|WebSocket connection to .* failed|ERR_CONNECTION/.test(text)

/** Collects errors and warnings of a page, and its requests to anything but the service. */
export const collectComplaints = (page: Page, base: () => string, complaints: Array<string>): void => {
  page.on("pageerror", error => complaints.push(error.message))
  page.on("console", message => {
    if (["error", "warning"].includes(message.type()) && !isProvoked(message.text())) complaints.push(message.text())
  })
  page.on("request", request => {
    if (!request.url().startsWith(base()) && !/^(?:blob|data):/.test(request.url())) complaints.push(request.url())
  })
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")

interface AxeResults {
  readonly violations: ReadonlyArray<{
    readonly id: string
    readonly impact: string
    readonly help: string
    readonly nodes: ReadonlyArray<{ readonly html: string }>
  }>
}

/** The serious and critical findings of axe, for all rules or the named ones. */
export const violations = async (page: Page, rules?: ReadonlyArray<string>): Promise<ReadonlyArray<string>> => {
  // The policy of the page blocks injected scripts, but not those of the debugger.
  if (!(await page.evaluate<boolean>("'axe' in globalThis"))) await page.evaluate(axeSource)
  return page.evaluate(
    async options => {
      const { axe } = globalThis as unknown as { axe: { run: (options: object) => Promise<AxeResults> } }
      const { violations } = await axe.run(options)
      return violations
        .filter(({ impact }) => impact === "serious" || impact === "critical")
        .flatMap(({ help, id, nodes }) => nodes.map(({ html }) => `${id}: ${help}: ${html}`))
    },
    rules === undefined ? {} : { runOnly: [...rules] }
  )
}
