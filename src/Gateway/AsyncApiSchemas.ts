/** JSON Schemas of the protocol as an AsyncAPI document holds them: draft 07, named ones once. */
import { JSONSchema, type Schema } from "effect"
import { isJsonObject, type JsonObject, mapMembers, withoutUndefined } from "../OpenApi/SchemaProjection.ts"

const path = "#/components/schemas/"

/** A reference to a named schema. */
export const ref = (name: string): JsonObject => ({ $ref: `${path}${name}` })

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
