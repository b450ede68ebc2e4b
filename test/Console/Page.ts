/** Modules of the console that are tested outside a browser. */
import { fileURLToPath } from "node:url"
import { vi } from "vitest"

/** The path of a module. It is imported by path, because its types are those of a browser. */
export const sourceOf = (file: string): string => fileURLToPath(new URL(`../../src/Console/${file}`, import.meta.url))

/** The routes that the service writes into the page, relative to it. */
const all = {
  ...{ store: "../api/v1", gateway: "../ws", health: "../health", ready: "../api/v1/ready" },
  ...{ activity: "../api/v1/activity", metricsJson: "../api/metrics", root: "../" }
}

/** Sets what the modules need of a browser, and loads them again. */
export const stubPage = (answer: typeof fetch, routes: Readonly<Record<string, string>> = all): void => {
  const content = JSON.stringify(routes)
  vi.stubGlobal("document", { hidden: false, querySelector: () => ({ content }), addEventListener: () => {} })
  vi.stubGlobal("location", { origin: "http://127.0.0.1:8080", href: "http://127.0.0.1:8080/console/" })
  const stored = new Map<string, string>()
  vi.stubGlobal("sessionStorage", {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => stored.set(name, value),
    removeItem: (name: string) => stored.delete(name)
  })
  vi.stubGlobal("addEventListener", () => {})
  vi.stubGlobal("fetch", answer)
  vi.resetModules()
}
