/** Creates the AsyncAPI 3.0.0 document of the channels of an application. */
import { JSONSchema, type Schema } from "effect"
import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"
import { version } from "../../base/Version.ts"
import { mapMembers, withoutUndefined } from "./SchemaProjection.ts"

/** The parts of a document for one WebSocket. Their names are unique among all channels. */
export interface Channel {
  readonly name: string
  /** Without `messages` and `servers`, which are derived from the other members. */
  readonly channel: JsonObject
  /** Includes the credential of the channel. */
  readonly server: JsonObject
  readonly credential: readonly [name: string, scheme: JsonObject]
  readonly messages: Readonly<Record<string, JsonObject>>
  readonly operations: Readonly<Record<string, JsonObject>>
  readonly schemas: JsonObject
}

export interface AsyncApiDocument {
  readonly asyncapi: "3.0.0"
  readonly info: JsonObject & { readonly title: string; readonly version: string; readonly description: string }
  readonly defaultContentType: "application/json"
  readonly servers: JsonObject
  readonly channels: Readonly<Record<string, JsonObject & { readonly messages: Readonly<Record<string, JsonObject>> }>>
  readonly operations: Readonly<Record<string, JsonObject>>
  readonly components: {
    readonly messages: Readonly<Record<string, JsonObject>>
    readonly schemas: JsonObject
    readonly securitySchemes: JsonObject
  }
}

const path = "#/components/schemas/"

/** A reference to a named schema. */
export const ref = (name: string): JsonObject => ({ $ref: `${path}${name}` })

export const messageOf = (channel: string, message: string): JsonObject => ({
  $ref: `#/channels/${channel}/messages/${message}`
})

/** Descriptions of Effect's own checks start with an article; ours start with a capital letter. */
const isAutomatic = (description: unknown): boolean => typeof description === "string" && /^an? /.test(description)

/** Removes the descriptions of Effect's own checks, and inlines numbers, because siblings of a `$ref` are ignored. */
const project = (u: unknown, definitions: JsonObject): unknown => {
  if (Array.isArray(u)) return u.map(item => project(item, definitions))
  if (!isObject(u)) return u
  const { $id, $ref, title, description, ...rest } = u
  const target = typeof $ref === "string" ? definitions[$ref.slice(path.length)] : undefined
  if (isNumber(target)) return project({ ...target, ...rest, ...withoutUndefined({ description }) }, definitions)
  const { properties } = rest
  return withoutUndefined({
    $ref,
    description: isAutomatic(description) ? undefined : description,
    ...mapMembers(rest, value => project(value, definitions)),
    // Members may be called what keywords are called.
    properties: isObject(properties) ? mapMembers(properties, value => project(value, definitions)) : undefined
  })
}

const isNumber = (u: unknown): u is JsonObject => isObject(u) && (u.type === "integer" || u.type === "number")

/**
 * The named schemas in some schemas, including themselves, by name.
 *
 * Objects may have additional members, which newer services and clients send.
 */
export const definitionsOf = (schemas: ReadonlyArray<Schema.Schema.All>): JsonObject => {
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

const merged = <A>(channels: ReadonlyArray<Channel>, of: (channel: Channel) => Readonly<Record<string, A>>) =>
  Object.assign({}, ...channels.map(of)) as Readonly<Record<string, A>>

export const make = (description: string, channels: ReadonlyArray<Channel>): AsyncApiDocument => ({
  asyncapi: "3.0.0",
  info: {
    title: "Causeway",
    version,
    description,
    license: { name: "MIT", url: "https://opensource.org/license/mit" },
    tags: channels.map(({ channel }) => ({ name: String(channel.title) }))
  },
  defaultContentType: "application/json",
  servers: merged(channels, ({ credential: [credential], name, server }) => ({
    [name]: {
      host: "{host}",
      protocol: "ws",
      ...server,
      variables: { host: { default: "127.0.0.1:8080", description: "Host and port." } },
      security: [{ $ref: `#/components/securitySchemes/${credential}` }]
    }
  })),
  channels: Object.fromEntries(
    channels.map(({ channel, messages, name }) => [
      name,
      {
        ...channel,
        servers: [{ $ref: `#/servers/${name}` }],
        messages: mapMembers(messages, (_, key) => ({ $ref: `#/components/messages/${key}` })) as Readonly<
          Record<string, JsonObject>
        >
      }
    ])
  ),
  operations: merged(channels, ({ operations }) => operations),
  components: {
    messages: merged(channels, ({ messages }) => messages),
    schemas: merged(channels, ({ schemas }) => schemas),
    securitySchemes: merged(channels, ({ credential: [name, scheme] }) => ({ [name]: scheme }))
  }
})
