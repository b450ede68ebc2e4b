/** Where the service is, as the page was told by it. */

/** Absolute paths; `undefined` where the application does not have the part. */
export interface Routes {
  readonly store: string | undefined
  readonly gateway: string | undefined
  readonly health: string | undefined
  readonly metrics: string | undefined
  readonly metricsJson: string | undefined
  readonly openApi: string | undefined
  readonly asyncApi: string | undefined
  readonly console: string | undefined
  readonly reference: string | undefined
  /** What the paths of the OpenAPI document are relative to. */
  readonly root: string
}

/** Those of the service itself, for a page that a development server sends. */
const defaults: { readonly [Name in keyof Routes]: string } = {
  store: "/api/v1",
  gateway: "/ws",
  health: "/health",
  metrics: "/metrics",
  metricsJson: "/api/metrics",
  openApi: "/api/v1/openapi.json",
  asyncApi: "/api/v1/asyncapi.json",
  console: "/console",
  reference: "/docs",
  root: "/"
}

const read = (): Routes => {
  const content = document.querySelector<HTMLMetaElement>('meta[name="causeway-routes"]')?.content ?? ""
  if (!content.startsWith("{")) return defaults
  const given: Partial<Record<keyof Routes, string>> = JSON.parse(content)
  const absolute = (path: string | undefined) =>
    path === undefined ? undefined : new URL(path, location.href).pathname
  return {
    store: absolute(given.store),
    gateway: absolute(given.gateway),
    health: absolute(given.health),
    metrics: absolute(given.metrics),
    metricsJson: absolute(given.metricsJson),
    openApi: absolute(given.openApi),
    asyncApi: absolute(given.asyncApi),
    console: absolute(given.console),
    reference: absolute(given.reference),
    root: absolute(given.root) ?? "/"
  }
}

export const routes: Routes = read()
