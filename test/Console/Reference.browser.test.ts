/**
 * The API reference as its users see it: one browser, and a service behind a proxy that puts a prefix before all paths.
 */
import { readFileSync } from "node:fs"
import { createServer, request } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { makeClient } from "../../src/exports/client.ts"
import { describeVisit, eventually, violations } from "./Visit.ts"

const prefix = "/a/b"

/** Passes on what is under the prefix, without it, until the scope closes. Returns its own URL, with the prefix. */
const proxy = (target: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = createServer((incoming, answer) => {
        const { headers, method, url = "" } = incoming
        if (!url.startsWith(`${prefix}/`)) return void answer.writeHead(404).end()
        const passed = request(target + url.slice(prefix.length), { method, headers }, response => {
          answer.writeHead(response.statusCode!, response.headers)
          response.pipe(answer)
        })
        passed.on("error", () => answer.destroy())
        answer.on("close", () => passed.destroy())
        incoming.pipe(passed)
      })
      await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
      return server
    }),
    server =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  ).pipe(Effect.map(server => `http://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}`))

describeVisit("The API reference in a browser", visit => {
  let page: Page
  /** The address of the service itself. */
  let base = ""

  beforeAll(async () => {
    page = visit.page
    base = (await visit.serve()).base
    visit.base = await visit.run(proxy(base))
  })

  const operation = (id: string) => page.locator(`.opblock[id$="-${id}"]`)

  const opened = async (id: string) => {
    await operation(id).locator(".opblock-summary-control").click()
    return operation(id)
  }

  const fill = async (id: string, fields: Readonly<Record<string, string>>) => {
    for (const [name, value] of Object.entries(fields)) {
      await operation(id).locator(`tr[data-param-name="${name}"] input`).fill(value)
    }
  }

  it("refuses a wrong key", async () => {
    await page.goto(`${visit.base}/docs`)
    await page.getByLabel("Key").fill("wrong")
    await page.getByRole("button", { name: "Open" }).click()
    await page.getByRole("alert").filter({ hasText: "Invalid key." }).waitFor()
    assert.deepStrictEqual(await violations(page), [])
  })

  it("shows every operation, and where the documents are", async () => {
    await page.getByLabel("Key").fill("dev-key")
    await page.getByRole("button", { name: "Open" }).click()
    await operation("setEntry").waitFor()
    const document = await fetch(`${base}/api/v1/openapi.json`, { headers: { authorization: "Bearer dev-key" } })
    const { paths } = (await document.json()) as { paths: Record<string, object> }
    const count = Object.values(paths).flatMap(Object.keys).length
    await eventually(async () => assert.strictEqual(await page.locator(".opblock").count(), count))
    await page.getByText("/a/b/api/v1/asyncapi.json").waitFor()
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "AsyncAPI", exact: true }).click()
    ])
    assert.strictEqual(download.suggestedFilename(), "asyncapi.json")
    assert.strictEqual(JSON.parse(readFileSync(await download.path(), "utf8")).asyncapi, "3.0.0")
  })

  it("sends a PUT and a GET to where the page comes from, with the key", async () => {
    const put = await opened("setEntry")
    await fill("setEntry", { namespace: "tenant:acme/settings", key: "theme" })
    await put.locator("textarea.body-param__text").fill('{"value":{"dark":true}}')
    await put.getByRole("button", { name: "Execute" }).click()
    await put.locator(".live-responses-table .response-col_status", { hasText: "200" }).waitFor()
    await put.getByText(`${visit.base}/api/v1/kv/tenant%3Aacme%2Fsettings/theme`).first().waitFor()
    const stored = await makeClient({ baseUrl: base, token: "dev-key" }).get("tenant:acme/settings", "theme")
    assert.deepStrictEqual(stored?.value, { dark: true })

    const get = await opened("getEntry")
    await fill("getEntry", { namespace: "tenant:acme/settings", key: "theme" })
    await get.getByRole("button", { name: "Execute" }).click()
    await get.locator(".live-responses-table", { hasText: '"dark": true' }).waitFor()
  })

  it("does not try out what has no end", async () => {
    const stream = await opened("streamChanges")
    await stream.getByText("Parameters").waitFor()
    assert.strictEqual(await stream.getByRole("button", { name: "Execute" }).count(), 0)
  })

  it("is fit for all eyes", async () => {
    // Swagger UI's own: a link in each button that opens an operation, and no label at the body and at choices.
    const isKnown = (found: string) =>
      /^nested-interactive:.*opblock-summary-control|^select-name:|^label:.*body-param__text/.test(found)
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme })
      await page.locator(`html${colorScheme === "dark" ? ".dark-mode" : ":not(.dark-mode)"}`).waitFor()
      const found = (await violations(page, colorScheme === "dark" ? ["color-contrast"] : undefined)).filter(
        found => !isKnown(found)
      )
      assert.deepStrictEqual(found, [], colorScheme)
    }
    await page.setViewportSize({ width: 360, height: 740 })
    await visit.isNoWiderThan(360)
    await page.setViewportSize({ width: 1280, height: 720 })
  })

  it("leads to the console with the same key, and back", async () => {
    await page.getByRole("link", { name: "Console" }).click()
    await page.getByText("reads and writes").waitFor()
    await page.getByRole("link", { name: "API reference" }).click()
    await operation("setEntry").waitFor()
    await page.getByRole("button", { name: "Sign out" }).click()
    await page.getByLabel("Key").waitFor()
    assert.strictEqual(await page.evaluate<number>("sessionStorage.length"), 0)
  })
})
