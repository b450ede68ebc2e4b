/** The routes of the service, which it writes into the page. */
import type { Routes } from "../../Pages/Paths.ts"

/** The default routes, for pages from a development server. */
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

/** Absolute paths. Routes that the application does not have are absent. */
const read = (): Partial<Routes> & Pick<Routes, "root"> => {
  const content = document.querySelector<HTMLMetaElement>('meta[name="causeway-routes"]')?.content ?? ""
  if (!content.startsWith("{")) return defaults
  const given: Readonly<Record<string, string>> = JSON.parse(content)
  const absolute = Object.entries(given).map(([name, path]) => [name, new URL(path, location.href).pathname])
  return { root: "/", ...Object.fromEntries(absolute) }
}

export const routes = read()
