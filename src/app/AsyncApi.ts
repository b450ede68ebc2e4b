/** The AsyncAPI document of an application: its WebSockets, generated from the schemas of their frames. */
import * as Gateway from "../Gateway/Protocol/AsyncApi.ts"
import { type AsyncApiDocument, make } from "../Http/OpenApi/AsyncApi.ts"
import * as ChangeFeed from "../Kv/ChangeFeed/AsyncApi.ts"

export type { AsyncApiDocument } from "../Http/OpenApi/AsyncApi.ts"

/** The paths of the WebSockets. A WebSocket without a path is not served. */
export interface Addresses {
  readonly gateway?: string | undefined
  readonly changeFeed?: string | undefined
}

/** The paths in the service itself. */
export const defaults = { gateway: "/ws", changeFeed: "/api/v1/changes/ws" } as const satisfies Addresses

interface Made {
  readonly document: AsyncApiDocument
  readonly text: string
}

const made = new Map<string, Made>()

const once = ({ changeFeed, gateway }: Addresses): Made => {
  const name = JSON.stringify([gateway, changeFeed])
  const known = made.get(name)
  if (known !== undefined) return known
  const parts = [
    ...(gateway === undefined ? [] : [{ description: Gateway.description, channel: Gateway.channelAt(gateway) }]),
    ...(changeFeed === undefined
      ? []
      : [{ description: ChangeFeed.description, channel: ChangeFeed.channelAt(changeFeed) }])
  ]
  const document = make(
    parts.map(({ description }) => description).join("\n\n"),
    parts.map(({ channel }) => channel)
  )
  const fresh = { document, text: JSON.stringify(document) }
  made.set(name, fresh)
  return fresh
}

/** The document, memoized. */
export const document = (addresses: Addresses = defaults): AsyncApiDocument => once(addresses).document

/** The document as JSON text. */
export const text = (addresses: Addresses = defaults): string => once(addresses).text
