/** The client protocol in the AsyncAPI document, generated from the schemas of the protocol. */
import type { JsonObject } from "../../base/Json/Parsing.ts"
import { type Channel, definitionsOf, messageOf, ref } from "../../Http/OpenApi/AsyncApi.ts"
import { Answer, answerTypes, followingTypes } from "./Answer.ts"
import { closeCodes } from "./Codes.ts"
import { Envelope, EventBody } from "./Event.ts"
import * as Examples from "./Examples.ts"
import { schemaName } from "./Fields.ts"
import * as Limits from "./Limits.ts"
import { Request, requestTypes } from "./Request.ts"

interface Message {
  readonly key: string
  readonly message: JsonObject
}

const message = (type: string, kind: string, summary: string, payload: JsonObject, example: unknown): Message => ({
  key: schemaName(type, kind),
  message: { name: type, summary, payload, examples: [{ name: type, payload: example }] }
})

const described = (definitions: JsonObject, key: string): string => {
  const definition = definitions[key]
  return typeof definition === "object" && definition !== null && "description" in definition
    ? String(definition.description)
    : key
}

const messagesOf = (definitions: JsonObject): ReadonlyArray<Message> => {
  const plain = (kind: string, examples: Readonly<Record<string, unknown>>): ReadonlyArray<Message> =>
    Object.entries(examples).map(([type, example]) => {
      const key = schemaName(type, kind)
      return message(type, kind, described(definitions, key), ref(key), example)
    })
  const events = Examples.allBodies.map(body => {
    const key = schemaName(body.type, "Event")
    const payload = { allOf: [ref("EventEnvelope"), ref(key)] }
    return message(body.type, "Event", described(definitions, key), payload, { ...body, ...Examples.envelope })
  })
  return [...plain("Request", Examples.requests), ...plain("Answer", Examples.answers), ...events]
}

const name = "gateway"

const channel = { $ref: `#/channels/${name}` }

const ofChannel = (key: string): JsonObject => messageOf(name, key)

/** From the gateway's side: it receives requests, replies, and sends events. */
const operationsOf = (
  definitions: JsonObject,
  events: ReadonlyArray<string>
): Readonly<Record<string, JsonObject>> => ({
  ...Object.fromEntries(
    requestTypes.map(type => [
      type,
      {
        action: "receive",
        channel,
        description: described(definitions, schemaName(type, "Request")),
        messages: [ofChannel(schemaName(type, "Request"))],
        reply: {
          channel,
          messages: [ofChannel(schemaName(answerTypes[type], "Answer")), ofChannel(schemaName("error", "Answer"))]
        }
      }
    ])
  ),
  events: {
    action: "send",
    channel,
    description: "The events of the sessions that the connection has subscribed to, and what belongs to subscriptions.",
    messages: events.map(ofChannel)
  }
})

/** The description of the protocol in the document. */
export const description = `Sessions with agents over one WebSocket. A client sends requests, each with an \`id\` that it chooses. The answer has the same \`id\`. The client receives the events of the sessions that it has subscribed to. Each event has a \`seq\`, which numbers the events of a session without gaps. An answer has none, except that a conversation has the \`seq\` where it ends. Limits of a connection: ${Limits.frameBytes} bytes per frame, ${Limits.requestsInFlight} requests in flight, ${Limits.messagesPerSecond} frames per second, ${Limits.subscriptions} subscriptions.`

/** The gateway's WebSocket at a path. */
export const channelAt = (address: string): Channel => {
  const schemas = definitionsOf([...Request.members, ...Answer.members, ...EventBody.members, Envelope])
  const messages = messagesOf(schemas)
  return {
    name,
    channel: {
      address,
      title: "Gateway",
      description:
        "Each frame is a text frame with one JSON object. A browser offers the subprotocols `causeway.v1, bearer.<token>`.",
      bindings: { ws: { method: "GET", bindingVersion: "0.1.0" } },
      "x-close-codes": Object.values(closeCodes)
    },
    server: { description: "The gateway. The protocol is `wss` if a proxy terminates TLS." },
    credential: [
      "token",
      {
        type: "http",
        scheme: "bearer",
        bearerFormat: "JWT",
        description: "A JSON Web Token with the claims `exp`, `tenant` and `sub`. Not required in dev mode."
      }
    ],
    messages: Object.fromEntries(messages.map(({ key, message }) => [key, message])),
    operations: operationsOf(schemas, [
      ...messages.map(({ key }) => key).filter(key => key.endsWith("Event")),
      ...followingTypes.map(type => schemaName(type, "Answer"))
    ]),
    schemas
  }
}
