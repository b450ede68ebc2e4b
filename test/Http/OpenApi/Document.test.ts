import { readFileSync, writeFileSync } from "node:fs"
import SwaggerParser from "@apidevtools/swagger-parser"
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpServer from "@effect/platform/HttpServer"
import * as OpenApi from "@effect/platform/OpenApi"
import { Validator } from "@seriousme/openapi-schema-validator"
import { Ajv } from "ajv"
import { Effect, Layer, Schema } from "effect"
import { describe, expect, it } from "vitest"
import { Api } from "../../../src/app/Api.ts"
import { isObject, type JsonObject } from "../../../src/base/Json/Parsing.ts"
import { ReadAccess } from "../../../src/Http/Auth/Api.ts"
import { DescriptionGroup } from "../../../src/Http/OpenApi/Api.ts"
import * as Document from "../../../src/Http/OpenApi/Document.ts"
import { endpoints } from "../../../src/Http/OpenApi/Endpoints.ts"
import * as GroupLayer from "../../../src/Http/Platform/GroupLayer.ts"
import { KvGroup } from "../../../src/Kv/Api.ts"

const document = Document.fromApi(Api)
const golden = new URL("../../golden/openapi.json", import.meta.url)

interface Operation {
  readonly path: string
  readonly method: string
  readonly operation: JsonObject
}

const operationsOf = (document: Document.OpenApiDocument): ReadonlyArray<Operation> =>
  Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method, operation }))
  )

const operations = operationsOf(document)

const member = (u: unknown, ...names: ReadonlyArray<string>): unknown =>
  names.reduce<unknown>((at, name) => (isObject(at) ? at[name] : undefined), u)

const expectValid = async (document: Document.OpenApiDocument) => {
  const text = JSON.stringify(document)
  expect(await new Validator().validate(JSON.parse(text))).toStrictEqual({ valid: true })
  await expect(SwaggerParser.validate(JSON.parse(text))).resolves.toBeDefined()
}

/** Accepts what a schema of the document accepts. */
const checker = (document: Document.OpenApiDocument) => {
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true })
  ajv.addSchema({ $id: "document", components: document.components })
  return (schema: unknown, value: unknown): ReadonlyArray<string> => {
    const text = JSON.stringify(schema).replaceAll('"$ref":"#/', '"$ref":"document#/')
    const validate = ajv.compile(JSON.parse(text))
    return validate(value) ? [] : (validate.errors ?? []).map(error => `${error.instancePath} ${error.message}`)
  }
}

describe("the OpenAPI document", () => {
  it("is OpenAPI 3.0.3 of this version, by two validators", async () => {
    const manifest: { version: string } = JSON.parse(
      readFileSync(new URL("../../../package.json", import.meta.url), "utf8")
    )
    expect(document.openapi).toBe("3.0.3")
    expect(document.info.version).toBe(manifest.version)
    await expectValid(document)
  })

  it("is what test/golden/openapi.json says", () => {
    const text = `${JSON.stringify(document, null, 2)}\n`
    if (process.env.UPDATE_GOLDEN === "1") writeFileSync(golden, text)
    expect(
      JSON.parse(text),
      "The description changed. If this is intended, update the file with UPDATE_GOLDEN=1 and review the difference."
    ).toStrictEqual(JSON.parse(readFileSync(golden, "utf8")))
  })

  it("describes every endpoint, and nothing else", () => {
    const declared: Array<string> = []
    HttpApi.reflect(Api, {
      onGroup: () => undefined,
      onEndpoint: ({ endpoint }) => {
        declared.push(`${endpoint.method.toLowerCase()} ${endpoint.path.replace(/:(\w+)/g, "{$1}")}`)
      }
    })
    expect(operations.map(({ method, path }) => `${method} ${path}`).sort()).toStrictEqual(declared.sort())
    expect(declared.length).toBeGreaterThan(15)
  })

  it("names operations and components for generated clients", () => {
    const ids = operations.map(({ operation }) => operation.operationId)
    expect(new Set(ids).size).toBe(ids.length)
    for (const id of ids) expect(id).toMatch(/^[a-z][A-Za-z]+$/)
    const names = Object.keys(document.components.schemas)
    expect(names).toEqual(expect.arrayContaining(["Entry", "Change", "Error", "BatchRequest", "SetRequest"]))
    for (const name of names) expect(name).toMatch(/^[A-Z][A-Za-z]*$/)
    const text = JSON.stringify(document)
    for (const name of names) expect(text, name).toContain(`"#/components/schemas/${name}"`)
  })

  it("has one shape for all errors, with the headers that go with them", () => {
    for (const { path, method, operation } of operations) {
      for (const [status, response] of Object.entries(operation.responses as JsonObject)) {
        const at = `${method} ${path} ${status}`
        expect(member(response, "description"), at).not.toBe("Success")
        // The reports of an unhealthy gateway and of an unavailable store are not errors.
        const isReport = ["/health", "/api/v1/ready"].includes(path) && status === "503"
        if (Number(status) < 400 || isReport) continue
        expect(member(response, "content", "application/json", "schema"), at).toStrictEqual({
          $ref: "#/components/schemas/Error"
        })
        const header = { 401: "WWW-Authenticate", 503: "Retry-After" }[status]
        if (header !== undefined) expect(member(response, "headers", header), at).toBeDefined()
      }
    }
  })

  it("has for sessions what their routes answer", () => {
    for (const { method, operation, path } of operations.filter(({ path }) => path.startsWith("/api/v1/sessions"))) {
      const { responses } = operation
      // Only what may be tried again says when, and that is 503.
      expect(member(responses, "409", "headers"), `${method} ${path}`).toBeUndefined()
      // Another node that owns the session may not answer.
      const isForwarded = path.includes("{id}") && !/(conversation|events)$/.test(path)
      if (isForwarded) expect(responses, `${method} ${path}`).toHaveProperty("504")
      const unchanged = member(responses, "304")
      if (unchanged !== undefined) expect(member(unchanged, "headers", "ETag"), path).toBeDefined()
    }
  })

  it("requires the credential except where the specification requires none", () => {
    // The operator configures whether `/metrics` requires one.
    const open = operations.filter(({ operation }) => {
      const { length, 0: first } = operation.security as ReadonlyArray<object>
      return length === 0 || Object.keys(first ?? {}).length === 0
    })
    expect(open.map(({ path }) => path).sort()).toStrictEqual([
      "/api/metrics",
      "/api/v1/health",
      "/api/v1/ready",
      "/health",
      "/metrics"
    ])
    expect(document.components.securitySchemes.bearer).toMatchObject({ type: "http", scheme: "bearer" })
    for (const { operation, path } of operations) {
      if (open.every(other => other.path !== path)) expect(operation.responses).toHaveProperty("401")
    }
  })

  it("takes a body where something is written", () => {
    for (const { operation } of operations) {
      if (operation.requestBody === undefined || operation.deprecated === true) continue
      expect(Object.keys(operation.responses as JsonObject)).toEqual(expect.arrayContaining(["400", "413", "415"]))
    }
  })

  it("accepts entries of any value, and no entry that lacks a field", () => {
    const problems = checker(document)
    const entry = { $ref: "#/components/schemas/Entry" }
    const whole = member(document.components.schemas.Entry, "example") as JsonObject
    for (const value of [null, 0, "", false, [], {}]) expect(problems(entry, { ...whole, value })).toStrictEqual([])
    expect(problems(entry, { ...whole, expiresAt: 1 })).toStrictEqual([])
    expect(problems(entry, { ...whole, expiresAt: "soon" })).not.toStrictEqual([])
    for (const name of Object.keys(whole)) {
      const { [name]: _, ...rest } = whole
      expect(problems(entry, rest), name).not.toStrictEqual([])
    }
  })

  it("has no member or parameter that is always refused, and none that a default makes required in generated types", () => {
    const { schemas } = document.components
    const text = JSON.stringify({ schemas, operations: operations.map(({ operation }) => operation.requestBody) })
    expect(text).not.toContain('"not":{}')
    expect(text).not.toContain('"default"')
    expect(Object.keys(schemas.SetRequest?.properties as JsonObject)).not.toContain("ifVersion")
    expect(checker(document)({ $ref: "#/components/schemas/SetRequest" }, { value: 1, ifVersion: 1 })).not.toEqual([])
    for (const { operation } of operations) {
      for (const { schema } of (operation.parameters ?? []) as ReadonlyArray<JsonObject>) {
        expect(schema).not.toMatchObject({ not: {} })
      }
    }
  })

  it("distinguishes the operations of a batch by op", () => {
    const problems = checker(document)
    const operation = { $ref: "#/components/schemas/BatchOperation" }
    const address = { namespace: "n", key: "k" }
    expect(problems(operation, { op: "set", ...address, value: null })).toStrictEqual([])
    expect(problems(operation, { op: "delete", ...address })).toStrictEqual([])
    expect(problems(operation, { op: "set", ...address })).not.toStrictEqual([])
    expect(problems(operation, { op: "move", ...address })).not.toStrictEqual([])
    expect(document.components.schemas.BatchOperation).toMatchObject({ discriminator: { propertyName: "op" } })
  })

  it("has examples of every JSON body, and all of them are valid", () => {
    const problems = checker(document)
    let checked = 0
    const check = (at: string, schema: unknown, value: unknown) => {
      checked++
      expect(problems(schema, value), at).toStrictEqual([])
    }
    const media = (at: string, content: unknown) => {
      for (const one of Object.values(isObject(content) ? content : {})) {
        const { schema, example, examples } = one as JsonObject
        if (example !== undefined) check(at, schema, example)
        for (const [name, { value }] of Object.entries((examples ?? {}) as Record<string, JsonObject>)) {
          check(`${at} ${name}`, schema, value)
        }
      }
    }
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      if (schema.example !== undefined) check(name, schema, schema.example)
      for (const [property, inner] of Object.entries((schema.properties ?? {}) as Record<string, JsonObject>)) {
        if (inner.example !== undefined) check(`${name}.${property}`, inner, inner.example)
        if (inner.default !== undefined) check(`${name}.${property}`, inner, inner.default)
      }
    }
    for (const { path, method, operation } of operations) {
      const at = `${method} ${path}`
      media(at, member(operation.requestBody, "content"))
      for (const parameter of (operation.parameters ?? []) as ReadonlyArray<{ name: string; schema: JsonObject }>) {
        const { schema, name } = parameter
        if (schema.default !== undefined) check(`${at} ${name}`, schema, schema.default)
        if (schema.example !== undefined) check(`${at} ${name}`, schema, schema.example)
      }
      for (const [status, response] of Object.entries(operation.responses as JsonObject)) {
        const content = member(response, "content")
        media(`${at} ${status}`, content)
        for (const one of Object.values(isObject(content) ? content : {})) {
          if (/\/(?:OpenApi|AsyncApi)Document$/.test(String(member(one, "schema", "$ref")))) continue
          // A file has no example.
          if (member(member(one, "schema"), "format") === "binary") continue
          expect(member(one, "example"), `${at} ${status} has no example`).toBeDefined()
        }
        for (const [name, header] of Object.entries(
          (member(response, "headers") ?? {}) as Record<string, JsonObject>
        )) {
          check(`${at} ${status} ${name}`, header.schema, header.example)
        }
      }
    }
    expect(checked).toBeGreaterThan(80)
  })

  it("is made once for an API", () => {
    expect(Document.fromApi(Api)).toBe(document)
    expect(Document.text(Api)).toBe(Document.text(Api))
    expect(JSON.parse(Document.text(Api))).toStrictEqual(JSON.parse(JSON.stringify(document)))
  })
})

class Greetings extends HttpApiGroup.make("greetings")
  .add(
    HttpApiEndpoint.get("hello", "/hello")
      .setUrlParams(Schema.Struct({ times: Schema.NumberFromString }))
      .addSuccess(Schema.NullOr(Schema.Struct({ _tag: Schema.Literal("Hello") }).annotations({ identifier: "Hello" })))
  )
  .annotate(OpenApi.Title, "Greetings") {}

describe("the document of a host", () => {
  const host = HttpApi.make("host").add(KvGroup).add(DescriptionGroup).prefix("/store").add(Greetings)

  it("has the host's routes, and ours under the host's prefix", async () => {
    const document = Document.fromApi(host)
    await expectValid(document)
    expect(Object.keys(document.paths)).toEqual(
      expect.arrayContaining(["/store/api/v1/kv/{namespace}/{key}", "/store/api/v1/openapi.json", "/hello"])
    )
    expect(Object.keys(document.paths)).not.toContain("/api/v1/openapi.json")
    expect(operationsOf(document)).toHaveLength(16)
  })

  it("does not describe the host's malformed requests, which the platform answers", () => {
    const { components, paths } = Document.fromApi(host)
    expect(components.schemas).toHaveProperty("HttpApiDecodeError")
    expect(paths["/hello"]?.get?.responses).toHaveProperty("400")
    expect(Document.fromApi(Api).components.schemas).not.toHaveProperty("HttpApiDecodeError")
  })

  it("has our tags unchanged if the host adds the whole API", async () => {
    const document = Document.fromApi(HttpApi.make("outer").add(Greetings).addHttpApi(Api))
    await expectValid(document)
    expect(document.tags.slice(1)).toStrictEqual(Document.fromApi(Api).tags)
  })

  it("keeps the version and the servers of the host", () => {
    const document = Document.fromApi(
      host.annotate(OpenApi.Version, "7.1.0").annotate(OpenApi.Servers, [{ url: "https://kv.example" }])
    )
    expect(document.info.version).toBe("7.1.0")
    expect(document.servers).toStrictEqual([{ url: "https://kv.example" }])
  })

  it("is served under the host's prefix", async () => {
    const small = HttpApi.make("small").add(DescriptionGroup).prefix("/store")
    const { handler, dispose } = HttpApiBuilder.toWebHandler(
      Layer.mergeAll(
        HttpApiBuilder.api(small).pipe(
          Layer.provide(GroupLayer.layer(small, DescriptionGroup, endpoints(small, Effect.succeed("{}")))),
          Layer.provide(Layer.succeed(ReadAccess, { bearer: () => Effect.succeed({ access: "read" }) }))
        ),
        HttpServer.layerContext
      )
    )
    const response = await handler(new Request("http://localhost/store/api/v1/openapi.json"))
    expect(response.status).toBe(200)
    expect(response.headers.get("content-type")).toBe("application/json")
    expect(await response.text()).toBe(Document.text(small))
    expect((await handler(new Request("http://localhost/api/v1/openapi.json"))).status).toBe(404)
    await dispose()
  })
})
