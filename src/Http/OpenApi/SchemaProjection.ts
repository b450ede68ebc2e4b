/**
 * Converts JSON Schema (draft 2020-12), as @effect/platform generates it, to the dialect of OpenAPI 3.0.3.
 *
 * Schemas that 3.0.3 cannot express are widened: the result accepts everything that the original accepts.
 */

import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"

const nodes = (u: unknown): ReadonlyArray<JsonObject> => (Array.isArray(u) ? u.filter(isObject) : [])

/** An object without its undefined members. */
export const withoutUndefined = (node: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(node).filter(([, value]) => value !== undefined))

/**
 * Whether no value satisfies a schema, such as that of a refused member. Documents omit such members, because generated
 * clients would have a type for them.
 */
export const isNever = (u: unknown): boolean => isObject(u) && isObject(u.not) && Object.keys(u.not).length === 0

export const mapMembers = (u: unknown, f: (value: unknown, name: string) => unknown): JsonObject =>
  isObject(u) ? Object.fromEntries(Object.entries(u).map(([name, value]) => [name, f(value, name)])) : {}

/** Keywords with the same meaning in both dialects and without nested schemas. */
const plainKeywords = [
  "description",
  "default",
  "deprecated",
  "discriminator",
  "externalDocs",
  "format",
  "maxItems",
  "maxLength",
  "maxProperties",
  "minItems",
  "minLength",
  "minProperties",
  "multipleOf",
  "pattern",
  "readOnly",
  "uniqueItems",
  "writeOnly",
  "xml"
]

/** Only null. `nullable` has an effect only with a `type`. */
const onlyNull: JsonObject = { type: "string", nullable: true, enum: [null] }

const isNull = (node: JsonObject): boolean => node.type === "null" || node.const === null

const typeOfLiteral = (literal: unknown): string | undefined =>
  ["string", "number", "boolean"].find(type => typeof literal === type)

const orNull = (schema: JsonObject): JsonObject => {
  if (Object.keys(schema).length === 0) return schema
  if (schema.type === undefined) return { anyOf: [schema, onlyNull] }
  const literals = schema.enum
  return { ...schema, nullable: true, ...(Array.isArray(literals) ? { enum: [...literals, null] } : {}) }
}

const typed = (node: JsonObject): JsonObject => {
  const literals = "const" in node ? [node.const] : Array.isArray(node.enum) ? node.enum : undefined
  const types = [node.type ?? typeOfLiteral(literals?.find(literal => literal !== null))].flat()
  const others = types.filter(type => type !== undefined && type !== "null")
  const known = literals?.filter(literal => literal !== null)
  const takesNull = types.includes("null") || literals?.includes(null) === true || node.nullable === true
  if (others.length === 0) return takesNull ? onlyNull : {}
  const schema: JsonObject =
    others.length === 1
      ? withoutUndefined({ type: others[0], enum: known })
      : { anyOf: others.map(type => (type === "array" ? { type, items: {} } : { type })) }
  return takesNull ? orNull(schema) : schema
}

/** Converts exclusive bounds, which are flags in 3.0.3. */
const bounds = (node: JsonObject): JsonObject => {
  const { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below } = node
  const lower = typeof above === "number" && !(typeof minimum === "number" && minimum > above)
  const upper = typeof below === "number" && !(typeof maximum === "number" && maximum < below)
  return withoutUndefined({
    minimum: lower ? above : minimum,
    exclusiveMinimum: lower || undefined,
    maximum: upper ? below : maximum,
    exclusiveMaximum: upper || undefined
  })
}

const int32 = 2 ** 31

/** Without a format, code generators use 32 bits for an integer, which is too small for epoch milliseconds. */
const integerFormat = ({ type, format, minimum, maximum }: JsonObject): JsonObject => {
  if (type !== "integer" || format !== undefined) return {}
  const fits = typeof minimum === "number" && minimum >= -int32 && typeof maximum === "number" && maximum < int32
  return { format: fits ? "int32" : "int64" }
}

const binaryFormat = (node: JsonObject): JsonObject => {
  if (node.contentEncoding === "base64") return { format: "byte" }
  return node.contentMediaType === "application/octet-stream" ? { format: "binary" } : {}
}

/**
 * Converts a schema and its nested schemas. `definitions` are the unconverted components, which are needed to find the
 * discriminators of unions.
 */
export const project = (input: unknown, definitions: JsonObject): JsonObject => {
  const go = (u: unknown): JsonObject => {
    if (u === false) return { not: {} }
    if (!isObject(u)) return {}
    const { $ref, ...rest } = u
    if ($ref === undefined) return schema(u)
    const siblings = schema(rest)
    // 3.0.3 ignores siblings of a reference.
    return Object.keys(siblings).length === 0 ? { $ref } : { allOf: [{ $ref }], ...siblings }
  }

  const tuple = (node: JsonObject): JsonObject => {
    const first = nodes(node.prefixItems)
    if (first.length === 0) return { items: go(node.items) }
    const members = isObject(node.items) ? [...first, node.items] : first
    return {
      items: members.length === 1 ? go(members[0]) : union(members),
      ...(node.items === false ? { maxItems: first.length } : {})
    }
  }

  const object = (node: JsonObject): JsonObject => {
    const members = Object.entries(mapMembers(node.properties, value => value))
    const properties = mapMembers(Object.fromEntries(members.filter(([, value]) => !isNever(value))), go)
    const named = Object.keys(properties).length > 0
    const patterns = Object.values(mapMembers(node.patternProperties, value => value)).filter(isObject)
    const { additionalProperties: others } = node
    return withoutUndefined({
      properties: named ? properties : undefined,
      required: Array.isArray(node.required) && node.required.length > 0 ? node.required : undefined,
      additionalProperties: isObject(others)
        ? go(others)
        : patterns.length > 0
          ? union(patterns)
          : // Additional properties are ignored, not refused; omitting the keyword allows them.
            others === true && !named
            ? true
            : undefined
    })
  }

  const union = (members: ReadonlyArray<JsonObject>): JsonObject => {
    const cases = members.filter(member => !isNull(member))
    const nullable = cases.length < members.length
    if (cases.length === 0) return onlyNull
    if (cases.length === 1) return nullable ? orNull(go(cases[0])) : go(cases[0])
    const tag = discriminator(cases, definitions)
    const anyOf = cases.map(go)
    if (!nullable) return tag === undefined ? { anyOf } : { oneOf: anyOf, discriminator: tag }
    return { anyOf: [...anyOf, onlyNull] }
  }

  const schema = (node: JsonObject): JsonObject => {
    const plain = Object.fromEntries(plainKeywords.filter(name => name in node).map(name => [name, node[name]]))
    const own = { ...typed(node), ...bounds(node), ...integerFormat(node), ...binaryFormat(node) }
    const anyOf = nodes(node.anyOf ?? node.oneOf)
    return withoutUndefined({
      // Titles of numbers and strings are names of Effect's filters.
      title: node.type === "object" ? node.title : undefined,
      ...own,
      ...(node.type === "array" ? tuple(node) : {}),
      ...(node.type === "object" ? object(node) : {}),
      ...(anyOf.length > 0 ? union(anyOf) : {}),
      ...(Array.isArray(node.allOf) ? { allOf: node.allOf.map(go) } : {}),
      ...("not" in node ? { not: go(node.not) } : {}),
      ...plain,
      example: node.example ?? (Array.isArray(node.examples) ? node.examples[0] : undefined)
    })
  }

  return go(input)
}

const refPrefix = "#/components/schemas/"

/** The discriminator of a union of references: a property with a different literal in each object. */
const discriminator = (cases: ReadonlyArray<JsonObject>, definitions: JsonObject): JsonObject | undefined => {
  const refs = cases.map(({ $ref }) => (typeof $ref === "string" ? $ref : ""))
  const objects = refs.map(ref => definitions[ref.slice(refPrefix.length)])
  const propertyName = Object.keys(wordsOf(objects[0])).find(name => {
    const words = objects.map(object => wordsOf(object)[name])
    return words.every(word => word !== undefined) && new Set(words).size === words.length
  })
  if (propertyName === undefined) return undefined
  const mapping = Object.fromEntries(objects.map((object, index) => [wordsOf(object)[propertyName], refs[index]]))
  return { propertyName, mapping }
}

/** The required properties of an object that have one string literal. */
const wordsOf = (object: unknown): Readonly<Record<string, string>> => {
  if (!isObject(object) || !isObject(object.properties) || !Array.isArray(object.required)) return {}
  const required = new Set<unknown>(object.required)
  const words = Object.entries(object.properties).flatMap(([name, property]): Array<[string, string]> => {
    if (!isObject(property) || !required.has(name)) return []
    const [word, ...more] = "const" in property ? [property.const] : Array.isArray(property.enum) ? property.enum : []
    return typeof word === "string" && more.length === 0 ? [[name, word]] : []
  })
  return Object.fromEntries(words)
}
