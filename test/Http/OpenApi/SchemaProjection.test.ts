import * as OpenApiJsonSchema from "@effect/platform/OpenApiJsonSchema"
import { Validator } from "@seriousme/openapi-schema-validator"
import AjvDraft04 from "ajv-draft-04"
import { Arbitrary, FastCheck as fc, Schema } from "effect"
import { describe, expect, it } from "vitest"
import { isObject, type JsonObject } from "../../../src/base/Json/Parsing.ts"
import { project } from "../../../src/Http/OpenApi/SchemaProjection.ts"
import { times } from "../../Scale.ts"

/** The parts of a schema that 3.0.3 does not allow, and that its validator accepts, by their path. */
const violations = (schema: unknown, at = ""): ReadonlyArray<string> => {
  if (!isObject(schema)) return [`${at} is no schema`]
  if ("$ref" in schema) return []
  const found: Array<string> = []
  if (schema.nullable !== undefined && schema.type === undefined) found.push(`${at}/nullable has no type`)
  if ((schema.type === "array") !== isObject(schema.items)) found.push(`${at}/items is ${schema.items}`)
  for (const name of ["allOf", "anyOf", "oneOf"]) {
    for (const inner of (schema[name] ?? []) as ReadonlyArray<unknown>)
      found.push(...violations(inner, `${at}/${name}`))
  }
  for (const name of ["not", "items"]) if (name in schema) found.push(...violations(schema[name], `${at}/${name}`))
  for (const [name, inner] of Object.entries((schema.properties ?? {}) as JsonObject)) {
    found.push(...violations(inner, `${at}/properties/${name}`))
  }
  const others = schema.additionalProperties
  if (others !== undefined && typeof others !== "boolean") found.push(...violations(others, `${at}/*`))
  return found
}

// Infinities are not JSON.
const Finite = Schema.JsonNumber

interface Tree {
  readonly name: string
  readonly branches: ReadonlyArray<Tree>
}

const Tree = Schema.Struct({
  name: Schema.String,
  branches: Schema.Array(Schema.suspend((): Schema.Schema<Tree> => Tree)).pipe(Schema.maxItems(2))
}).annotations({ identifier: "Tree" })

class Circle extends Schema.TaggedClass<Circle>()("Circle", { radius: Finite.pipe(Schema.positive()) }) {}
class Square extends Schema.TaggedClass<Square>()("Square", { side: Finite.pipe(Schema.between(0, 9)) }) {}

enum Fruit {
  Apple = "apple",
  Pear = "pear"
}

const Named = Schema.Struct({ id: Schema.Int }).annotations({ identifier: "Named" })

/** A schema for each feature that is specific to draft 2020-12. */
const schemas: Readonly<Record<string, Schema.Schema<unknown, unknown> | Schema.Schema.AnyNoContext>> = {
  unknown: Schema.Unknown,
  object: Schema.Object,
  emptyStruct: Schema.Struct({}),
  null: Schema.Null,
  nullable: Schema.NullOr(Schema.String),
  nullableLiteral: Schema.Literal("a", "b", null),
  nullableNumberLiteral: Schema.Literal(1, null),
  nullableReference: Schema.NullOr(Named),
  nullableUnion: Schema.NullOr(Schema.Union(Named, Finite)),
  nullableUnknown: Schema.NullOr(Schema.Unknown),
  mixedLiterals: Schema.Literal("a", 1, true, null),
  positive: Finite.pipe(Schema.positive()),
  negative: Finite.pipe(Schema.negative()),
  bothBounds: Finite.pipe(Schema.greaterThan(0), Schema.greaterThanOrEqualTo(0), Schema.lessThan(5)),
  smallInt: Schema.Int.pipe(Schema.between(-5, 5)),
  tuple: Schema.Tuple(Schema.String, Finite),
  tupleOfOne: Schema.Tuple(Schema.Boolean),
  emptyTuple: Schema.Tuple(),
  optionalTuple: Schema.Tuple(Schema.String, Schema.optionalElement(Finite)),
  tupleWithRest: Schema.Tuple([Schema.String], Finite),
  nonEmptyArray: Schema.NonEmptyArray(Schema.Int),
  record: Schema.Record({ key: Schema.String, value: Finite }),
  templateKeys: Schema.Record({ key: Schema.TemplateLiteral("x-", Schema.String), value: Finite }),
  refinedKeys: Schema.Record({ key: Schema.String.pipe(Schema.minLength(2)), value: Schema.Boolean }),
  structWithRest: Schema.Struct({ a: Finite }, Schema.Record({ key: Schema.String, value: Finite })),
  tagged: Schema.Union(Circle, Square),
  enums: Schema.Enums(Fruit),
  template: Schema.TemplateLiteral("v", Schema.Number),
  base64: Schema.Uint8ArrayFromBase64,
  date: Schema.Date,
  json: Schema.parseJson(Schema.Struct({ a: Finite })),
  option: Schema.Option(Finite),
  optional: Schema.Struct({ a: Schema.optional(Finite), b: Schema.optionalWith(Named, { exact: true }) }),
  annotatedReference: Schema.Struct({ a: Named.annotations({ description: "another" }) }),
  defaulted: Schema.Struct({ a: Schema.optionalWith(Finite, { default: () => 3 }) }),
  recursive: Tree
}

const projected = (schema: Schema.Schema.AnyNoContext) => {
  const definitions: Record<string, unknown> = {}
  const original = OpenApiJsonSchema.makeWithDefs(Schema.make(schema.ast), {
    defs: definitions,
    defsPath: "#/components/schemas/"
  })
  const components = Object.fromEntries(
    Object.entries(definitions).map(([name, definition]) => [name, project(definition, definitions)])
  )
  return { schema: project(original, definitions), components }
}

const compile = (schema: JsonObject, components: Readonly<Record<string, JsonObject>>) =>
  // The schemas of OpenAPI 3.0.3 are similar to draft 4, exclusive bounds included.
  new AjvDraft04.default({ strict: false, validateFormats: false }).compile({
    ...schema,
    components: { schemas: components }
  })

describe("projection of schemas to 3.0.3", () => {
  for (const [name, schema] of Object.entries(schemas)) {
    it(`accepts whatever ${name} encodes to, in keywords of 3.0.3`, async () => {
      const { schema: output, components } = projected(schema)
      for (const [at, one] of Object.entries({ ...components, [name]: output })) expect(violations(one, at)).toEqual([])
      expect(
        await new Validator().validate({
          openapi: "3.0.3",
          info: { title: "t", version: "1" },
          paths: {},
          components: { schemas: { ...components, Checked: output } }
        })
      ).toStrictEqual({ valid: true })
      const accepts = compile("$ref" in output ? { allOf: [output] } : output, components)
      const encode = Schema.encodeUnknownSync(Schema.make<unknown, unknown>(schema.ast))
      fc.assert(
        fc.property(Arbitrary.make(Schema.typeSchema(Schema.make<unknown, unknown>(schema.ast))), value => {
          const wire: unknown = JSON.parse(JSON.stringify(encode(value)) ?? "null")
          expect(accepts(wire), JSON.stringify(wire)).toBe(true)
        }),
        { numRuns: times(30) }
      )
    })
  }

  const of = (schema: unknown) => project(schema, {})

  it.each([
    ["unknown", { $id: "/schemas/unknown", title: "unknown" }, {}],
    ["never", { $id: "/schemas/never", not: {} }, { not: {} }],
    ["false", false, { not: {} }],
    ["true", true, {}],
    ["null", { type: "null" }, { type: "string", nullable: true, enum: [null] }],
    ["type arrays", { type: ["string", "null"] }, { type: "string", nullable: true }],
    ["several types", { type: ["string", "array"] }, { anyOf: [{ type: "string" }, { type: "array", items: {} }] }],
    ["const", { const: "a" }, { type: "string", enum: ["a"] }],
    ["const null", { const: null }, { type: "string", nullable: true, enum: [null] }],
    ["nullable", { anyOf: [{ type: "boolean" }, { type: "null" }] }, { type: "boolean", nullable: true }],
    [
      "nullable words",
      { anyOf: [{ type: "string", enum: ["a"] }, { type: "null" }] },
      { type: "string", enum: ["a", null], nullable: true }
    ],
    [
      "a nullable reference",
      { anyOf: [{ $ref: "#/x" }, { type: "null" }] },
      { anyOf: [{ $ref: "#/x" }, { type: "string", nullable: true, enum: [null] }] }
    ],
    [
      "exclusive bounds",
      { type: "number", exclusiveMinimum: 0 },
      { type: "number", minimum: 0, exclusiveMinimum: true }
    ],
    ["the stricter bound", { type: "number", exclusiveMinimum: 0, minimum: 2 }, { type: "number", minimum: 2 }],
    [
      "the stricter bound above",
      { type: "number", exclusiveMaximum: 3, maximum: 3 },
      { type: "number", maximum: 3, exclusiveMaximum: true }
    ],
    ["wide integers", { type: "integer" }, { type: "integer", format: "int64" }],
    [
      "narrow integers",
      { type: "integer", minimum: 0, maximum: 9 },
      { type: "integer", minimum: 0, maximum: 9, format: "int32" }
    ],
    ["siblings of references", { $ref: "#/x", description: "d" }, { allOf: [{ $ref: "#/x" }], description: "d" }],
    ["examples", { type: "string", examples: ["a", "b"] }, { type: "string", example: "a" }],
    ["base64", { type: "string", contentEncoding: "base64" }, { type: "string", format: "byte" }],
    [
      "tuples",
      { type: "array", prefixItems: [{ type: "string" }, { type: "boolean" }], items: false, minItems: 2 },
      { type: "array", items: { anyOf: [{ type: "string" }, { type: "boolean" }] }, minItems: 2, maxItems: 2 }
    ],
    [
      "pattern properties",
      { type: "object", required: [], properties: {}, patternProperties: { "": { type: "string" } } },
      { type: "object", additionalProperties: { type: "string" } }
    ],
    [
      "properties named like keywords",
      { type: "object", required: ["const"], properties: { const: { type: "string" }, $id: { type: "string" } } },
      { type: "object", properties: { const: { type: "string" }, $id: { type: "string" } }, required: ["const"] }
    ]
  ])("says %s", (_, input, output) => {
    expect(of(input)).toStrictEqual(output)
  })

  it("distinguishes the cases of a union by their tag", () => {
    const { schema } = projected(Schema.Union(Circle, Square))
    expect(schema).toStrictEqual({
      oneOf: [{ $ref: "#/components/schemas/Circle" }, { $ref: "#/components/schemas/Square" }],
      discriminator: {
        propertyName: "_tag",
        mapping: { Circle: "#/components/schemas/Circle", Square: "#/components/schemas/Square" }
      }
    })
  })
})
