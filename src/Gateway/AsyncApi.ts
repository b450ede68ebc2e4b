/** The client protocol as an AsyncAPI 3.0.0 document, generated from the schemas of the protocol. */
import { JSONSchema, type Schema } from "effect"
import { isJsonObject, type JsonObject, mapMembers, withoutUndefined } from "../OpenApi/SchemaProjection.ts"
import { version } from "../Version.ts"
import { Answer, answerTypes } from "./Protocol/Answer.ts"
import { closeCodes } from "./Protocol/CloseCode.ts"
import { Envelope, EventBody } from "./Protocol/Event.ts"
import * as Examples from "./Protocol/Examples.ts"
import { schemaName } from "./Protocol/Fields.ts"
import * as Limits from "./Protocol/Limits.ts"
import { Request, requestTypes } from "./Protocol/Request.ts"

/** An AsyncAPI document, as far as anything here looks into it. */
export interface AsyncApiDocument {
  readonly asyncapi: "3.0.0"
  readonly info: { readonly title: string; readonly version: string; readonly description: string }
  readonly defaultContentType: "application/json"
  readonly servers: JsonObject
  readonly channels: Readonly<
    Record<"gateway", JsonObject & { readonly messages: Readonly<Record<string, JsonObject>> }>
  >
  readonly operations: Readonly<Record<string, JsonObject>>
  readonly components: {
    readonly messages: Readonly<Record<string, JsonObject>>
    readonly schemas: JsonObject
    readonly securitySchemes: JsonObject
  }
}

const path = "#/components/schemas/"

/** A reference to a named schema. */
const ref = (name: string): JsonObject => ({ $ref: `${path}${name}` })

/** The sentences that effect has for its own checks begin with an article; ours begin with a capital. */
const isAutomatic = (description: unknown): boolean => typeof description === "string" && /^an? /.test(description)

/** Without the names that effect gives to its own checks, and numbers in place: beside a `$ref` nothing counts. */
const project = (u: unknown, definitions: JsonObject): unknown => {
  if (Array.isArray(u)) return u.map(item => project(item, definitions))
  if (!isJsonObject(u)) return u
  const { $id, $ref, title, description, ...rest } = u
  const target = typeof $ref === "string" ? definitions[$ref.slice(path.length)] : undefined
  if (isNumber(target)) return project({ ...target, ...rest, ...withoutUndefined({ description }) }, definitions)
  const { properties } = rest
  return withoutUndefined({
    $ref,
    description: isAutomatic(description) ? undefined : description,
    ...mapMembers(rest, value => project(value, definitions)),
    // Members may be called what keywords are called.
    properties: isJsonObject(properties) ? mapMembers(properties, value => project(value, definitions)) : undefined
  })
}

const isNumber = (u: unknown): u is JsonObject => isJsonObject(u) && (u.type === "integer" || u.type === "number")

/**
 * The named schemas that some schemas consist of, themselves included, by name.
 *
 * Objects may hold more than is named: a newer gateway tells more, and a newer client asks for more.
 */
const definitionsOf = (schemas: ReadonlyArray<Schema.Schema.All>): JsonObject => {
  const definitions = {}
  for (const { ast } of schemas) {
    JSONSchema.fromAST(ast, {
      definitions,
      definitionPath: path,
      target: "jsonSchema7",
      additionalPropertiesStrategy: "allow"
    })
  }
  const found: JsonObject = definitions
  return Object.fromEntries(
    Object.entries(found)
      .filter(([, definition]) => !isNumber(definition))
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, definition]) => [name, project(definition, found)])
  )
}

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

const channel = { $ref: "#/channels/gateway" }

const ofChannel = (key: string): JsonObject => ({ $ref: `#/channels/gateway/messages/${key}` })

/** From the gateway's side: it receives requests, replies, and sends events. */
const operationsOf = (events: ReadonlyArray<string>): Readonly<Record<string, JsonObject>> => ({
  ...Object.fromEntries(
    requestTypes.map(type => [
      type,
      {
        action: "receive",
        channel,
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
    summary: "The events of the sessions that the connection has subscribed to.",
    messages: events.map(ofChannel)
  }
})

const description = `Sessions with agents over one WebSocket. A client sends requests, each with an \`id\` that it chooses. The answer has the same \`id\`. The client receives the events of the sessions that it has subscribed to. Each event has a \`seq\`, which numbers the events of a session without gaps. An answer has no \`seq\`. Limits of a connection: ${Limits.frameBytes} bytes per frame, ${Limits.requestsInFlight} requests in flight, ${Limits.messagesPerSecond} frames per second, ${Limits.subscriptions} subscriptions.`

const make = (address: string): AsyncApiDocument => {
  const schemas = definitionsOf([...Request.members, ...Answer.members, ...EventBody.members, Envelope])
  const messages = messagesOf(schemas)
  return {
    asyncapi: "3.0.0",
    info: { title: "Causeway gateway", version, description },
    defaultContentType: "application/json",
    servers: {
      gateway: {
        host: "{host}",
        protocol: "ws",
        description: "The gateway. The protocol is `wss` if a proxy terminates TLS.",
        variables: { host: { default: "127.0.0.1:8080", description: "Host and port." } },
        security: [{ $ref: "#/components/securitySchemes/token" }]
      }
    },
    channels: {
      gateway: {
        address,
        title: "Gateway",
        description:
          "Each frame is a text frame with one JSON object. A browser offers the subprotocols `causeway.v1, bearer.<token>`.",
        messages: Object.fromEntries(messages.map(({ key }) => [key, { $ref: `#/components/messages/${key}` }])),
        bindings: { ws: { method: "GET", bindingVersion: "0.1.0" } },
        "x-close-codes": Object.values(closeCodes)
      }
    },
    operations: operationsOf(messages.map(({ key }) => key).filter(key => key.endsWith("Event"))),
    components: {
      messages: Object.fromEntries(messages.map(({ key, message }) => [key, message])),
      schemas,
      securitySchemes: {
        token: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description: "A JSON Web Token with the claims `exp`, `tenant` and `sub`. Not required in dev mode."
        }
      }
    }
  }
}

interface Made {
  readonly document: AsyncApiDocument
  readonly text: string
}

const made = new Map<string, Made>()

const once = (address: string): Made => {
  const known = made.get(address)
  if (known !== undefined) return known
  const document = make(address)
  const fresh = { document, text: JSON.stringify(document) }
  made.set(address, fresh)
  return fresh
}

/** The path of the WebSocket, unless an application puts it elsewhere. */
const defaultAddress = "/ws"

/** The document; made when it is first asked for, and the same object from then on. */
export const document = (address = defaultAddress): AsyncApiDocument => once(address).document

/** The document as JSON text. */
export const text = (address = defaultAddress): string => once(address).text
