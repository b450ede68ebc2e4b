/** Where the service is, as the page was told by it. */
import type { Routes } from "../../Pages/Paths.ts"

/** Those of the service itself, for a page that a development server sends. */
const defaults: Partial<Routes> & Pick<Routes, "root"> = {
  store: "/api/v1",
  gateway: "/ws",
  health: "/health",
  ready: "/api/v1/ready",
  metrics: "/metrics",
  metricsJson: "/api/metrics",
  openApi: "/api/v1/openapi.json",
  asyncApi: "/api/v1/asyncapi.json",
  console: "/console",
  reference: "/docs",
  root: "/"
}

/** Absolute paths; what the application does not have is not there. */
const read = (): Partial<Routes> & Pick<Routes, "root"> => {
  const content = document.querySelector<HTMLMetaElement>('meta[name="causeway-routes"]')?.content ?? ""
  if (!content.startsWith("{")) return defaults
  const given: Readonly<Record<string, string>> = JSON.parse(content)
  const absolute = Object.entries(given).map(([name, path]) => [name, new URL(path, location.href).pathname])
  return { root: "/", ...Object.fromEntries(absolute) }
}

export const routes = read()
