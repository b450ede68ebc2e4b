/**
 * Makes the pictures of the console in the README: `npm run screenshots`. It takes two minutes, because plots need some
 * history, and needs Debian's chromium.
 */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { chromium, type Page } from "playwright-core"
import { makeClient } from "../../src/exports/client.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const images = join(root, "docs/images")
const token = "dev-key"
const settings = "tenant:acme/settings"

/** How long the load lasts before the picture of the overview is taken, in milliseconds. */
const loadMs = 90_000

const width = 1280
const heights = { overview: 960, other: 720 }

/** Starts the service on a new store, and returns its address. */
const start = async (directory: string) => {
  const env = { PATH: process.env.PATH, DEV_MODE: "true", DATA_DIR: directory, PORT: "0" }
  const service = spawn(process.execPath, ["--import", "tsx", "src/main.ts"], {
    cwd: root,
    env,
    stdio: ["ignore", "pipe", "inherit"]
  })
  let banner = ""
  for await (const text of service.stdout.setEncoding("utf8")) {
    banner += text
    const base = /dev mode, at (\S+)\n/.exec(banner)?.[1]
    if (base === undefined) continue
    service.stdout.destroy()
    return { base, service }
  }
  throw new Error(`The service has not started: ${banner}`)
}

/** Sets entries of an example application. */
const fill = async (base: string): Promise<void> => {
  const client = makeClient({ baseUrl: base, token })
  const actors = ["anna", "deploy-bot", "ben"]
  for (let number = 0; number < 24; number++) {
    const key = `feature.${String(number).padStart(2, "0")}.enabled`
    await client.set(settings, key, number % 3 !== 0, { actor: actors[number % actors.length]! })
  }
  await client.set("cities", "3067696", { name: "Praha", country: "CZ", population: 1_165_581 })
  await client.set("tenant:acme/stock", "apples", 12, { actor: "shop" })
  await client.set("tenant:globex/settings", "locale", "en", { actor: "cara" })
  await client.set(settings, "theme", { dark: false, limit: 3 }, { actor: "anna" })
}

/** Reads and writes at a varying rate, until the signal. */
const load = async (base: string, ended: AbortSignal): Promise<void> => {
  const client = makeClient({ baseUrl: base, token })
  for (let tick = 0; !ended.aborted; tick++) {
    const many = 4 + Math.round(3 * Math.sin(tick / 60))
    await Promise.all(
      Array.from({ length: many }, async (_, index) => {
        await client.set("load", `key-${(tick * 7 + index) % 50}`, { tick })
        await client.get("load", `key-${index}`)
        if (index === 0 && tick % 5 === 0) await client.set("load", "key-0", tick, { ifVersion: 0 }).catch(() => {})
      })
    )
    await setTimeout(100)
  }
}

const take = async (page: Page, name: string): Promise<void> => {
  await setTimeout(500)
  await page.screenshot({ path: join(images, `console-${name}.png`) })
}

const takeStore = async (page: Page, base: string): Promise<void> => {
  const open = `location.hash = "#/store/${encodeURIComponent(settings)}/theme"`
  await page.evaluate(open)
  const editor = page.getByRole("region", { name: "Entry" }).getByRole("textbox", { name: "Value" })
  await page.getByText("version 1", { exact: true }).waitFor()
  await editor.fill('{"dark": "mine", "limit": 99}')
  await makeClient({ baseUrl: base, token }).set(settings, "theme", { dark: "theirs", limit: 3 }, { actor: "cara" })
  await page.getByText(/^cara changed this entry/).waitFor()
  await page.getByRole("button", { name: "Save" }).click()
  await page.getByRole("dialog").getByText("Stored: version 2 by cara").waitFor()
  await take(page, "store")
  await page.keyboard.press("Escape")
  // Otherwise the console asks before the changes are lost.
  await page.getByRole("button", { name: "Discard", exact: true }).click()
}

const takeSession = async (page: Page): Promise<void> => {
  const log = page.getByRole("log", { name: "Conversation" })
  const say = async (text: string) => {
    await page.getByRole("button", { name: "Interrupt", exact: true }).waitFor({ state: "detached" })
    await page.getByLabel("Message").fill(text)
    await page.keyboard.press("Enter")
  }
  await page.evaluate('location.hash = "#/sessions"')
  await page.getByRole("button", { name: "New" }).click()
  await page.getByLabel("Agent type").fill("coder")
  await page.getByRole("button", { name: "Create" }).click()
  await say("Please tidy up the notes")
  await log.getByText("echo: Please tidy up the notes").waitFor()
  await say("/approve")
  await page.getByRole("button", { name: "Approve", exact: true }).click()
  await log.getByText("Answer: approved").waitFor()
  await say("/ask")
  await page.getByRole("button", { name: "blue", exact: true }).waitFor()
  await page.getByRole("link", { name: /^Please tidy/ }).waitFor()
  await take(page, "session")
}

const directory = mkdtempSync(join(tmpdir(), "causeway-screenshots-"))
const { base, service } = await start(directory)
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] })
const ended = new AbortController()
try {
  await fill(base)
  const page = await browser.newPage({ viewport: { width, height: heights.overview }, colorScheme: "light" })
  await page.goto(`${base}/console`)
  await page.getByLabel("Key or token").fill(token)
  await page.getByRole("button", { name: "Sign in" }).click()
  await page.getByRole("heading", { name: "Everything works" }).waitFor()
  await page.getByRole("button", { name: "5 min", exact: true }).click()
  const loaded = load(base, ended.signal)
  await setTimeout(loadMs)
  await take(page, "overview")
  ended.abort()
  await loaded
  await page.setViewportSize({ width, height: heights.other })
  await takeStore(page, base)
  await takeSession(page)
} finally {
  ended.abort()
  await browser.close()
  service.kill()
  await once(service, "exit")
  rmSync(directory, { recursive: true, force: true })
}
