import type { IncomingMessage } from "node:http"

const route = Symbol("causeway/route")

interface Routed extends IncomingMessage {
  [route]?: string
}

/** A route template as metrics and spans show it: parameters as in `{key}`, which is how the api's document has them. */
export const label = (template: string): string =>
  template
    .split("/")
    .map(segment => (segment.startsWith(":") ? `{${segment.slice(1)}}` : segment))
    .join("/")

/** Notes on a request which route took it, so that nobody has to find out again. */
export const note = (request: Routed, label: string): void => {
  request[route] = label
}

/** The label of the route that took a request, where that was noted. */
export const noted = (request: Routed): string | undefined => request[route]
