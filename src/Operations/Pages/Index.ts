/** Answers requests for the root of the service: a browser gets the console, and other clients an index of paths. */
import { Effect } from "effect"
import { version } from "../../base/Version.ts"
import { weightsIn } from "../../Http/Compression.ts"
import * as Endpoints from "../../Http/Endpoints.ts"
import { empty, json } from "../../Http/Reply.ts"
import { IndexGroup } from "./Api.ts"
import type { PagesShape } from "./Endpoints.ts"

/** Whether a client prefers a page to JSON. Browsers name HTML; `*\/*`, as of curl, does not. */
const prefersPage = (accept: string | ReadonlyArray<string> | undefined): boolean => {
  const weights = weightsIn(accept)
  return (weights.get("text/html") ?? 0) > (weights.get("application/json") ?? 0)
}

/**
 * The handlers of the `index` group. The paths are relative, because a proxy may have removed a prefix. They need no
 * credential and are the same for every client.
 */
export const indexEndpoints = (pages: PagesShape) => {
  const page = pages.console ? "console/" : pages.reference ? "docs/" : undefined
  const headers = { vary: "Accept", "cache-control": "no-cache" }
  const paths = {
    version,
    ...(pages.console && { console: "console/" }),
    ...(pages.reference && { docs: "docs/" }),
    health: "health",
    ready: "api/v1/ready"
  }
  const index = json(JSON.stringify(paths), headers)
  return Endpoints.of(
    IndexGroup,
    Effect.succeed({
      index: ({ incoming }) =>
        Effect.succeed(
          page !== undefined && prefersPage(incoming.headers.accept)
            ? empty(302, { ...headers, location: page })
            : index
        )
    })
  )
}
