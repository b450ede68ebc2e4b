/** The OpenAPI 3.0.3 document of an API: of this service or of a host. */
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Context, Option, SchemaAST } from "effect"
import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"
import { version as packageVersion } from "../../base/Version.ts"
import { isNever, mapMembers, project, withoutUndefined } from "./SchemaProjection.ts"

/** An OpenAPI 3.0.3 document, as far as this module reads it. */
export interface OpenApiDocument {
  readonly openapi: "3.0.3"
  readonly info: { readonly title: string; readonly version: string; readonly description?: string }
  readonly servers: ReadonlyArray<JsonObject>
  readonly tags: ReadonlyArray<JsonObject>
  /** By path, then by method in lower case. */
  readonly paths: Readonly<Record<string, Readonly<Record<string, JsonObject>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, JsonObject>>
    readonly securitySchemes: Readonly<Record<string, JsonObject>>
  }
  readonly security?: ReadonlyArray<JsonObject>
}

const isClosed = (ast: SchemaAST.AST): boolean =>
  Option.exists(SchemaAST.getParseOptionsAnnotation(ast), ({ onExcessProperty }) => onExcessProperty === "error")

const partsOf = (ast: SchemaAST.AST): ReadonlyArray<SchemaAST.AST> => {
  switch (ast._tag) {
    case "TypeLiteral":
      return ast.propertySignatures.map(({ type }) => type)
    case "TupleType":
      return [...ast.elements, ...ast.rest].map(({ type }) => type)
    case "Union":
      return ast.types
    case "Refinement":
    case "Transformation":
      return [ast.from]
    default:
      return []
  }
}

/**
 * The identifiers of objects in request bodies that refuse unknown members. The platform's document has
 * `additionalProperties: false` for all objects, even if they ignore unknown members.
 */
const closedSchemas = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): ReadonlySet<string> => {
  const closed = new Set<string>()
  const visit = (ast: SchemaAST.AST): void => {
    if (isClosed(ast)) Option.map(SchemaAST.getIdentifierAnnotation(ast), name => closed.add(name))
    partsOf(ast).forEach(visit)
  }
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint }) => {
      Option.map(endpoint.payloadSchema, ({ ast }) => visit(ast))
    }
  })
  return closed
}

interface Made {
  readonly document: OpenApiDocument
  readonly text: string
}

const made = new WeakMap<object, Made>()

const make = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): Made => {
  const known = made.get(api)
  if (known !== undefined) return known
  const version = Option.getOrElse(Context.getOption(api.annotations, OpenApi.Version), () => packageVersion)
  const document = fromSpec(OpenApi.fromApi(api), version, closedSchemas(api))
  const fresh = { document, text: JSON.stringify(document) }
  made.set(api, fresh)
  return fresh
}

/** The document of an API, memoized. The version is that of the API's annotation, or of this package. */
export const fromApi = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): OpenApiDocument => make(api).document

/** The document of an API as JSON text, memoized. */
export const text = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): string => make(api).text

/**
 * Converts @effect/platform's document, which is OpenAPI 3.1.0, to 3.0.3. The components named in `closed` allow no
 * additional properties.
 */
export const fromSpec = (
  spec: OpenApi.OpenAPISpec,
  version: string,
  closed: ReadonlySet<string> = new Set()
): OpenApiDocument => {
  const definitions: JsonObject = spec.components.schemas
  const schema = (u: unknown) => project(u, definitions)
  const { summary, license, title, description = summary } = spec.info
  return {
    openapi: "3.0.3",
    info: {
      title,
      version,
      ...(description === undefined ? {} : { description }),
      ...(license === undefined ? {} : { license: withoutUndefined({ name: license.name, url: license.url }) })
    },
    servers: spec.servers?.map(server => ({ ...server })) ?? [{ url: "/" }],
    tags: spec.tags.map(tag => ({ ...tag })),
    paths: Object.fromEntries(
      Object.entries(spec.paths).map(([path, item]) => [
        path,
        Object.fromEntries(Object.entries(item).map(([method, operation]) => [method, operationOf(operation, schema)]))
      ])
    ),
    components: {
      schemas: mapMembers(definitions, (definition, name) =>
        closed.has(name) ? { ...schema(definition), additionalProperties: false } : schema(definition)
      ) as Readonly<Record<string, JsonObject>>,
      securitySchemes: Object.fromEntries(
        Object.entries(spec.components.securitySchemes).map(([name, scheme]) => [name, { ...scheme }])
      )
    },
    ...(spec.security.length === 0 ? {} : { security: spec.security })
  }
}

type Schema = (u: unknown) => JsonObject

const operationOf = (operation: OpenApi.OpenAPISpecOperation, schema: Schema): JsonObject => {
  const { operationId, summary, description, requestBody, responses, ...others } = operation
  const parameters = operation.parameters.filter(parameter => !isNever(parameter.schema))
  return withoutUndefined({
    operationId,
    summary,
    description,
    ...others,
    parameters: parameters.length === 0 ? undefined : parameters.map(parameter => parameterOf(parameter, schema)),
    requestBody: requestBody && { ...requestBody, content: contentOf(requestBody.content, schema) },
    responses: mapMembers(responses, response => responseOf(response, schema))
  })
}

/** Whether a query parameter is a required text that may be empty. */
const mayBeEmpty = (place: string, isRequired: boolean, { enum: values, minLength, type }: JsonObject): boolean =>
  place === "query" && isRequired && type === "string" && minLength === undefined && values === undefined

const parameterOf = (parameter: OpenApi.OpenAPISpecParameter, schema: Schema): JsonObject => {
  const { description, ...type } = schema(parameter.schema)
  const { name, in: place, required, ...others } = parameter
  // Without it, generated forms such as those of Swagger UI do not send empty texts.
  const allowEmptyValue = mayBeEmpty(place, required, type) || undefined
  return withoutUndefined({ name, in: place, description, ...others, required, allowEmptyValue, schema: type })
}

const responseOf = (response: unknown, schema: Schema): unknown =>
  isObject(response)
    ? withoutUndefined({
        ...response,
        headers: response.headers && mapMembers(response.headers, header => withSchema(header, schema)),
        content: response.content && contentOf(response.content, schema)
      })
    : response

const contentOf = (content: unknown, schema: Schema): JsonObject =>
  mapMembers(content, media => withSchema(media, schema))

const withSchema = (u: unknown, schema: Schema): unknown => (isObject(u) ? { ...u, schema: schema(u.schema) } : u)
