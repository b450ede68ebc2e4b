/**
 * Documentation of contracts beyond their types: headers, examples, and errors that all endpoints share.
 *
 * The functions are used with `OpenApi.Transform`, and therefore apply to the document of a host too.
 */
import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"
import { mapMembers, withoutUndefined } from "./SchemaProjection.ts"

/** Documentation of the responses with one status. */
export interface Answer {
  readonly description?: string
  /** Response headers by name. */
  readonly headers?: Readonly<Record<string, Header>> | undefined
  /** A body as encoded. */
  readonly example?: unknown
}

/** A response header, required unless `required` is false. */
export interface Header {
  readonly description: string
  readonly required?: boolean
  readonly schema: JsonObject
  readonly example: string | number
}

/** Documentation of an endpoint beyond its types. */
export interface Details {
  /** The name of the operation in generated clients. */
  readonly operationId: string
  readonly summary: string
  readonly description: string
  readonly answers?: Readonly<Record<number, Answer>>
  /** Examples of request bodies by name. */
  readonly requests?: Readonly<Record<string, { readonly summary: string; readonly value: unknown }>>
  /** A JSON body that the endpoint accepts and ignores. */
  readonly ignored?: { readonly schema: JsonObject; readonly example: unknown }
  /** Statuses that the types declare and the endpoint never answers. */
  readonly never?: ReadonlyArray<number>
  /** The accepted credentials, if no middleware declares them; `{}` for none. */
  readonly security?: ReadonlyArray<JsonObject>
}

/** The entity tag of an entry. */
export const etag: Header = {
  description: "The version of the entry, in quotes.",
  schema: { type: "string", pattern: '^"[0-9]+"$' },
  example: '"3"'
}

/** The time after which a client may retry. */
export const retryAfter = (seconds: number): Header => ({
  description: "Seconds to wait before a retry.",
  schema: { type: "integer", minimum: 0 },
  example: seconds
})

const error = (error: string, headers?: Answer["headers"]): Answer =>
  headers === undefined ? { example: { error } } : { example: { error }, headers }

/** Documentation of errors, by status. */
const shared: Readonly<Record<number, Answer>> = {
  400: { description: "The request is malformed. The message names the field." },
  401: error("Unauthorized", {
    "WWW-Authenticate": {
      description: "The scheme to use.",
      schema: { type: "string" },
      example: 'Bearer realm="causeway"'
    }
  }),
  403: error("Forbidden"),
  404: error("Not found"),
  409: error("The request with this Idempotency-Key is still in progress", { "Retry-After": retryAfter(1) }),
  412: error("Precondition failed: the entry is at version 3", {
    ETag: { ...etag, description: "The version of the entry in quotes, if there is one.", required: false }
  }),
  413: error("value has 1048577 bytes of JSON; the limit is 1048576"),
  415: error("the body must be application/json, not text/plain"),
  422: error("This Idempotency-Key was used for another request"),
  500: error("Internal server error"),
  503: error("Store unavailable", { "Retry-After": retryAfter(1) })
}

/** Adds the documentation to an endpoint's operation. */
export const operation =
  (details: Details) =>
  (made: JsonObject): JsonObject => {
    const never = new Set(details.never?.map(String))
    const responses = Object.entries(mapMembers(made.responses, value => value)).filter(
      ([status]) => !never.has(status)
    )
    return withoutUndefined({
      ...made,
      operationId: details.operationId,
      summary: details.summary,
      description: details.description,
      ...(details.security === undefined ? {} : { security: details.security }),
      requestBody: bodyOf(made.requestBody, details),
      responses: Object.fromEntries(
        responses.map(([status, response]) => [
          status,
          isObject(response)
            ? answered(response, { ...shared[Number(status)], ...details.answers?.[Number(status)] })
            : response
        ])
      )
    })
  }

const bodyOf = (body: unknown, { requests, ignored }: Details): unknown => {
  if (ignored !== undefined) return { required: false, content: { "application/json": ignored } }
  return isObject(body) && requests !== undefined
    ? { ...body, content: withMembers(body.content, { examples: requests }) }
    : body
}

const answered = (response: JsonObject, { description, headers, example }: Answer): JsonObject =>
  withoutUndefined({
    ...response,
    description: description ?? response.description,
    headers: headers && mapMembers(headers, header => (isObject(header) ? { required: true, ...header } : header)),
    content: response.content && (example === undefined ? response.content : withMembers(response.content, { example }))
  })

const withMembers = (content: unknown, members: JsonObject): JsonObject =>
  mapMembers(content, media => (isObject(media) ? { ...media, ...members } : media))

const platformError = "HttpApiDecodeError"

/**
 * Removes @effect/platform's own error from a document, because requests that do not match the contract receive the
 * declared 400. Other input is returned unchanged: an API that is added to another passes its annotations to its groups.
 */
export const withoutPlatformError = (spec: JsonObject): JsonObject => {
  if (!isObject(spec.paths)) return spec
  const components = isObject(spec.components) ? spec.components : {}
  const schemas = mapMembers(components.schemas, value => value)
  return {
    ...spec,
    paths: mapMembers(spec.paths, item => mapMembers(item, plainOperation)),
    components: { ...components, schemas: withoutOrphans(schemas, platformError) }
  }
}

const refTo = (name: string): string => `#/components/schemas/${name}`

const isPlatformError = (u: unknown): boolean => isObject(u) && u.$ref === refTo(platformError)

const plainOperation = (operation: unknown): unknown => {
  if (!isObject(operation) || !isObject(operation.responses)) return operation
  const responses = Object.entries(operation.responses).flatMap(([status, response]) => {
    if (!isObject(response) || !isObject(response.content)) return [[status, response]]
    const content = mapMembers(response.content, media =>
      isObject(media) ? { ...media, schema: plainSchema(media.schema) } : media
    )
    const empty = Object.values(content).every(media => isObject(media) && media.schema === undefined)
    return empty ? [] : [[status, { ...response, content }]]
  })
  return { ...operation, responses: Object.fromEntries(responses) }
}

const plainSchema = (schema: unknown): unknown => {
  if (isPlatformError(schema)) return undefined
  if (!isObject(schema) || !Array.isArray(schema.anyOf)) return schema
  const anyOf = schema.anyOf.filter(member => !isPlatformError(member))
  return anyOf.length === 1 ? anyOf[0] : { ...schema, anyOf }
}

/** Removes a definition, and the definitions that only it refers to. */
const withoutOrphans = (schemas: JsonObject, name: string): JsonObject => {
  const { [name]: removed, ...rest } = schemas
  const remaining = JSON.stringify(rest)
  return refsIn(removed)
    .filter(ref => ref in rest && !remaining.includes(JSON.stringify(refTo(ref))))
    .reduce(withoutOrphans, rest)
}

const refsIn = (schema: unknown): ReadonlyArray<string> =>
  [...(JSON.stringify(schema) ?? "").matchAll(/"#\/components\/schemas\/([^"]+)"/g)].map(([, name]) => name!)
