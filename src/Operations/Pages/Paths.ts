/** The routes of the service relative to a page. They work under any prefix, also one that a proxy removes. */

/** Absolute paths of the routes that pages use; `undefined` if the application does not have them. */
export interface Routes {
  /** The path before `/kv` and `/changes`. */
  readonly store: string | undefined
  readonly gateway: string | undefined
  readonly health: string | undefined
  readonly ready: string | undefined
  readonly activity: string | undefined
  /** `/api/metrics`, which is served in dev mode only. */
  readonly metricsJson: string | undefined
  /** The path before `/:agentType` of the chats of the AI SDK. */
  readonly chats: string | undefined
  readonly openApi: string | undefined
  readonly asyncApi: string | undefined
  /** The other pages. */
  readonly chatPage: string | undefined
  readonly console: string | undefined
  readonly reference: string | undefined
  /** The base of the paths in the OpenAPI document: `/`. */
  readonly root: string
}

/** An absolute path, relative to the path of a page, which ends with a slash. */
export const relative = (page: string, path: string): string => "../".repeat(page.split("/").length - 2) + path.slice(1)

/** The routes as JSON text, relative to the path of a page. */
export const describe = (page: string, routes: Routes): string =>
  JSON.stringify(
    Object.fromEntries(
      Object.entries(routes).flatMap(([name, path]) => (path === undefined ? [] : [[name, relative(page, path)]]))
    )
  )
