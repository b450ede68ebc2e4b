/**
 * Where a page finds the service, relative to itself: so it works under any prefix, also one that a proxy takes off.
 */

/** Absolute paths of the routes that pages use; `undefined` where an application does not have them. */
export interface Routes {
  /** What stands before `/kv` and `/changes`. */
  readonly store: string | undefined
  readonly gateway: string | undefined
  readonly health: string | undefined
  readonly ready: string | undefined
  /** `/metrics`, where it is served and open. */
  readonly metrics: string | undefined
  /** `/metrics`, where it is served and wants a token of its own. */
  readonly lockedMetrics: string | undefined
  /** `/api/metrics`, where it is served. */
  readonly metricsJson: string | undefined
  readonly openApi: string | undefined
  readonly asyncApi: string | undefined
  /** The other pages. */
  readonly console: string | undefined
  readonly reference: string | undefined
  /** What the paths of the OpenAPI document are relative to: `/`. */
  readonly root: string
}

/** An absolute path as seen from a page at another one, which ends with a slash. */
export const relative = (page: string, path: string): string => "../".repeat(page.split("/").length - 2) + path.slice(1)

/** The routes as JSON text, seen from a page. */
export const describe = (page: string, routes: Routes): string =>
  JSON.stringify(
    Object.fromEntries(
      Object.entries(routes).flatMap(([name, path]) => (path === undefined ? [] : [[name, relative(page, path)]]))
    )
  )
