import { spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { chromium, type Page } from "playwright-core"
import { makeClient } from "./src/client.ts"

const out = process.argv[2] ?? "/tmp/console/shots"
mkdirSync(out, { recursive: true })
const directory = mkdtempSync(join(tmpdir(), "causeway-s-"))
const children: Array<ReturnType<typeof spawn>> = []
const serve = async (env: Record<string, string>, pattern: RegExp) => {
  const child = spawn(process.execPath, ["--import", "tsx", "src/main.ts"], { env: { PATH: process.env.PATH!, PORT: "0", ...env }, stdio: ["ignore", "pipe", "inherit"] })
  children.push(child)
  let text = ""
  return await new Promise<string>(resolve => child.stdout!.on("data", d => { text += d; const m = pattern.exec(text); if (m) resolve(m[1]!) }))
}
const base = await serve({ DEV_MODE: "true", DATA_DIR: directory }, /dev mode, at (\S+)\n/)
const profile = mkdtempSync(join(tmpdir(), "causeway-p-"))
const browser = await chromium.launchPersistentContext(profile, { executablePath: "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu"] })
const client = makeClient({ baseUrl: base, token: "dev-key" })
const page: Page = await browser.newPage()
page.setDefaultTimeout(15000)
page.on("console", m => { if (m.type() === "error") console.log("console:", m.text()) })
page.on("pageerror", m => console.log("error:", m.message))
const only = process.argv[3]?.split(",")
const shot = async (name: string) => {
  if (only && !only.includes(name)) return
  const paths: Array<string> = []
  for (const [w, h] of [[1280, 720], [360, 740]] as const) for (const colorScheme of ["light", "dark"] as const) {
    await page.setViewportSize({ width: w, height: h }); await page.emulateMedia({ colorScheme })
    await page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"); await page.waitForTimeout(150)
    const over = await page.evaluate("document.documentElement.scrollWidth - innerWidth"); if (over) console.log(name, w, "overflows by", over)
    const path = join(out, `${name}-${w}-${colorScheme}.png`); await page.screenshot({ path }); paths.push(path)
  }
  await page.setViewportSize({ width: 1280, height: 720 }); await page.emulateMedia({ colorScheme: "light" })
  const [a, b, c, d] = paths
  const sheet = await browser.newPage()
  await sheet.setViewportSize({ width: 1640, height: 1450 })
  const { readFileSync } = await import("node:fs")
  const uri = (p: string) => `data:image/png;base64,${readFileSync(p).toString("base64")}`
  await sheet.setContent(`<body style="margin:0;background:#888"><div style="display:flex;gap:0"><div><img src="${uri(a!)}" style="display:block;width:1280px"><img src="${uri(b!)}" style="display:block;width:1280px;margin-top:8px"></div><div><img src="${uri(c!)}" style="display:block;width:352px;margin-left:8px"><img src="${uri(d!)}" style="display:block;width:352px;margin:8px 0 0 8px"></div></div></body>`)
  await sheet.screenshot({ path: join(out, `${name}.png`) }); await sheet.close()
}
const open = (...s: ReadonlyArray<string>) => page.evaluate(`location.hash = "#/${s.map(encodeURIComponent).join("/")}"`)
const button = (name: string) => page.getByRole("button", { name, exact: true })
try {
  for (let i = 0; i < 60; i++) await client.set("tenant:acme/settings", `feature.${String(i).padStart(2, "0")}.enabled`, i % 2 === 0, { actor: i % 3 ? "anna" : "deploy-bot" })
  for (let i = 0; i < 5; i++) await client.set("tenant:acme/settings", "theme", { dark: i % 2 === 0, limit: 12345678, colors: { accent: "#0b6556", list: [1, 2, 3, i] }, note: "A rather long note that goes on for a while, so that a line must be scrolled or wrapped in a narrow window" }, { actor: i % 2 ? "ben" : "anna" })
  for (const n of ["cities", "tenant:globex/settings", "a-very-long-namespace-name-that-does-not-fit-anywhere/with/parts"]) await client.set(n, "a/very/long/key/with/many/segments/which/does/not/fit/into/the/pane/at/all", { a: 1 })
  await page.goto(`${base}/console`); await page.getByLabel("Key or token").waitFor(); await shot("01-sign-in")
  await page.getByLabel("Key or token").fill("wrong"); await button("Sign in").click(); await page.getByRole("alert").waitFor(); await shot("02-refused")
  await page.getByLabel("Key or token").fill("dev-key"); await button("Sign in").click(); await page.getByText("reads and writes").waitFor()
  for (let i = 0; i < 4; i++) { await Promise.all(Array.from({ length: 50 }, (_, k) => client.set("load", `k${k}`, i))); await page.waitForTimeout(1500) }
  await shot("03-overview")
  await page.locator(".scroll-view").evaluate(e => e.scrollTo(0, 1e6)); await shot("03b-overview-end")
  await open("store"); await page.getByRole("link", { name: /cities/ }).waitFor(); await shot("04-namespaces")
  await open("store", "tenant:acme/settings"); await page.getByText("61 entries").waitFor(); await shot("05-keys")
  await open("store", "tenant:acme/settings", "theme"); await page.getByText("version 5", { exact: true }).waitFor(); await shot("06-entry")
  const editor = page.getByRole("region", { name: "Entry" }).getByRole("textbox", { name: "Value" })
  await editor.fill('{"dark": true,\n "limit" 3}'); await button("Save").click(); await page.getByText(/Line 2/).waitFor(); await shot("07-entry-problem")
  await editor.fill('{"dark": "mine", "limit": 99}'); await client.set("tenant:acme/settings", "theme", { dark: "theirs", limit: 3 }, { actor: "cara" }); await page.getByText(/while you were editing/).waitFor(); await shot("08-entry-behind")
  await button("Save").click(); await page.getByText("Stored: version 6 by cara").waitFor(); await shot("09-conflict")
  await button("Keep editing").click(); await button("Discard").click()
  await page.getByRole("tab", { name: "History" }).click(); await page.getByRole("button", { name: /^version 2/ }).click(); await shot("10-history")
  await page.getByRole("tab", { name: "Value" }).click(); await button("Delete").click(); await shot("11-delete"); await button("Cancel").click()
  await open("store", "tenant:acme/settings"); await button("New").click(); await page.getByRole("dialog").getByLabel("Key").fill("fresh"); await shot("12-new-entry"); await button("Cancel").click()
  await button("Import and export").click(); await shot("13-transfer"); await button("Close").click()
  await open("store", "tenant:acme/settings", "nothing here"); await page.getByText("There is no such entry.").waitFor(); await shot("13b-absent")
  await open("feed"); await page.getByRole("list", { name: "Changes, the newest first" }).getByRole("link").first().waitFor(); await shot("14-feed")
  await open("sessions"); await page.getByText("No sessions yet.").waitFor(); await shot("15-sessions-empty")
  await button("New").click(); await shot("16-new-session"); await page.getByLabel("Agent type").fill("coder"); await button("Create").click(); await page.getByText("Nothing was said yet.").waitFor()
  const say = async (t: string) => { await button("Interrupt").waitFor({ state: "detached" }); await page.getByLabel("Message").fill(t); await page.keyboard.press("Enter") }
  await say("Please tidy up the notes, and tell me what you have changed."); await page.getByRole("log").getByText(/echo: Please/).waitFor()
  await button("Interrupt").waitFor({ state: "detached" })
  await say("and once more, in a second message"); await page.getByRole("log").getByText(/echo: and once/).waitFor()
  await say("/approve"); await page.getByRole("region", { name: "Approval" }).waitFor(); await shot("17-approval")
  await button("Approve").click(); await page.getByText("Answer: approved").waitFor()
  await say("/ask"); await page.getByRole("button", { name: "blue" }).waitFor(); await shot("18-question")
  await page.getByRole("button", { name: "blue" }).click(); await button("Interrupt").waitFor({ state: "detached" })
  await page.getByRole("log").getByRole("button", { name: /^write_file/ }).first().click(); await page.getByRole("log").getByRole("button", { name: /^Thought/ }).first().click(); await page.getByRole("log").evaluate(e => e.scrollTo(0, 0)); await shot("19-conversation")
  await page.getByRole("region", { name: "Events" }).getByRole("button", { name: /turn_completed/ }).last().click(); await shot("20-events")
  await page.getByLabel("Events with").fill("approv"); await page.waitForTimeout(600); await shot("20b-events-found")
  await button("Files").click(); await page.getByRole("button", { name: /last-message/ }).waitFor(); await shot("21-files")
  await page.getByRole("region", { name: "Files" }).getByRole("button", { name: /last-message/ }).click(); await page.getByLabel("Iteration", { exact: true }).waitFor(); await shot("22-file"); await button("Changes").click(); await page.waitForTimeout(300); await shot("23-file-diff")
  await open("sessions"); await page.waitForTimeout(500); await shot("24-sessions")
  await page.goto(`${base}/docs`); await page.locator(".opblock").first().waitFor(); await shot("25-docs")
  await button("Sign out").click(); await page.getByLabel("Key").waitFor(); await shot("26-docs-sign-in")
  // production
  if (!only || only.some(n => n > "3")) {
  const dir2 = mkdtempSync(join(tmpdir(), "causeway-s-"))
  const port = await serve({ NODE_ENV: "production", DATA_DIR: dir2, KV_API_KEY: "a-key", AGENT_PLATFORM_URL: "http://127.0.0.1:9", GATEWAY_JWT_SECRET: "a secret of at least thirty-two bytes", METRICS_PROMETHEUS: "true", METRICS_TOKEN: "m" }, /"message":"Listening".*?"port":(\d+)/)
  await page.goto(`http://127.0.0.1:${port}/console`); await page.getByLabel("Key or token").fill("a-key"); await button("Sign in").click(); await page.getByLabel("Metrics token").fill("wrong"); await page.keyboard.press("Enter"); await page.getByRole("alert").waitFor(); await shot("30-locked")
  await open("sessions"); await page.getByText("With the present key").waitFor(); await shot("31-token"); await page.getByLabel("Token").fill("wrong"); await page.keyboard.press("Enter"); await page.getByRole("alert").waitFor(); await shot("32-token-refused")
  const { SignJWT } = await import("jose")
  const jwt = await new SignJWT({ tenant: "acme", sub: "anna" }).setProtectedHeader({ alg: "HS256" }).setExpirationTime("1h").sign(new TextEncoder().encode("a secret of at least thirty-two bytes"))
  await page.getByLabel("Token").fill(jwt); await page.keyboard.press("Enter"); await page.getByText("Tenant acme").waitFor(); await shot("33-tenant")
  await open("overview"); children[1]!.kill("SIGKILL"); await page.getByText("The service does not answer. Trying again").waitFor(); await shot("34-away")
  rmSync(dir2, { recursive: true, force: true })
  }
} catch (error) { console.log(error); await page.screenshot({ path: join(out, "failed.png") }) } finally {
  await browser.close(); for (const c of children) c.kill("SIGTERM"); rmSync(directory, { recursive: true, force: true }); rmSync(profile, { recursive: true, force: true })
}
