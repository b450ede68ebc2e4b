/** The WebSocket of the change feed in the AsyncAPI document. */

import { JSONSchema, Schema } from "effect"
import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"
import { type Channel, definitionsOf, messageOf, ref } from "../../Http/OpenApi/AsyncApi.ts"
import { Change, Entry } from "../Api.ts"
import * as Description from "../Description.ts"
import { FollowParams } from "../Requests.ts"
import { closes } from "./Follower.ts"

const name = "changeFeed"

const position = {
  lastSeq: Schema.Int.annotations({ description: "How far the log was read for this client: the next `after`." }),
  epoch: Schema.String.annotations({ description: "Which log it is: the `epoch` to send with the next `after`." })
}

const position42 = { lastSeq: Description.change.seq, epoch: "9f86d081884c7d65" }

/** The frames that the service sends. */
const frames = [
  {
    type: "changes",
    identifier: "ChangesFrame",
    summary: "Changes in ascending `seq`.",
    fields: { changes: Schema.Array(Change), ...position },
    example: { changes: [Description.change], ...position42 }
  },
  {
    type: "heartbeat",
    identifier: "HeartbeatFrame",
    summary: "15 seconds have passed without another frame.",
    fields: position,
    example: position42
  },
  {
    type: "initial",
    identifier: "InitialFrame",
    summary: "With `initial=1`, entries of the namespace, all of one snapshot.",
    fields: { entries: Schema.Array(Entry) },
    example: { entries: [Description.entry] }
  },
  {
    type: "initial-end",
    identifier: "InitialEndFrame",
    summary: "All entries were sent. The changes after them follow.",
    fields: position,
    example: position42
  },
  {
    type: "reset",
    identifier: "ResetFrame",
    summary: "The service has another log than `epoch` says: list again. The connection is closed with 4010.",
    fields: position,
    example: position42
  }
]

/** The parameters of the handshake. */
const query = (): JsonObject => {
  const { properties }: JsonObject = { ...JSONSchema.make(FollowParams) }
  return { type: "object", properties: isObject(properties) ? properties : {} }
}

/** The description of the feed in the document. */
export const description =
  "The changes of the key-value store over one WebSocket. Messages from the client are discarded."

/** The WebSocket of the change feed at a path. */
export const channelAt = (address: string): Channel => ({
  name,
  channel: {
    address,
    title: "Change feed",
    description:
      "Each frame is a text frame with one JSON object. A browser offers the subprotocols `causeway.v1, bearer.<base64url of the key>`.",
    bindings: { ws: { method: "GET", query: query(), bindingVersion: "0.1.0" } },
    "x-close-codes": Object.values(closes)
  },
  server: { description: "The change feed. The protocol is `wss` if a proxy terminates TLS." },
  credential: ["key", { type: "http", scheme: "bearer", description: "KV_API_KEY or KV_AGENT_API_KEY." }],
  messages: Object.fromEntries(
    frames.map(({ example, identifier, summary, type }) => [
      identifier,
      { name: type, summary, payload: ref(identifier), examples: [{ name: type, payload: { type, ...example } }] }
    ])
  ),
  operations: {
    changes: {
      action: "send",
      channel: { $ref: `#/channels/${name}` },
      description: "What a client that follows the log is sent.",
      messages: frames.map(({ identifier }) => messageOf(name, identifier))
    }
  },
  schemas: definitionsOf(
    frames.map(({ fields, identifier, summary, type }) =>
      Schema.Struct({ type: Schema.Literal(type), ...fields }).annotations({ identifier, description: summary })
    )
  )
})
