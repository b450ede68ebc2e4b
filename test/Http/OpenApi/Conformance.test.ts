import { describe, expect } from "@effect/vitest"
import { Ajv } from "ajv"
import { Effect } from "effect"
import { Api } from "../../../src/app/Api.ts"
import { isObject, type JsonObject } from "../../../src/base/Json/Parsing.ts"
import * as Document from "../../../src/Http/OpenApi/Document.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { keys, stock } from "../../Harness.ts"
import { test } from "../../Tests.ts"

const document = Document.fromApi(Api)

const ajv = new Ajv({ strict: false, validateFormats: false })
ajv.addSchema({ $id: "document", components: document.components })

const accepts = (schema: unknown, value: unknown): boolean =>
  ajv.validate(JSON.parse(JSON.stringify(schema).replaceAll('"$ref":"#/', '"$ref":"document#/')), value)

const segmentsOf = (path: string) => path.split("?", 1)[0]!.split("/")

/** The operation that a request is for. */
const operationOf = (method: string, path: string): JsonObject | undefined => {
  const segments = segmentsOf(path)
  const templates = Object.keys(document.paths).filter(template => {
    const parts = template.split("/")
    return parts.length === segments.length && parts.every((part, at) => part.startsWith("{") || part === segments[at])
  })
  return templates.map(template => document.paths[template]?.[method.toLowerCase()]).find(one => one !== undefined)
}

interface Sent {
  readonly method: string
  readonly path: string
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })
const json = { "content-type": "application/json" }
const entry = "/api/v1/kv/tenant%3Aacme%2Fa/k"
const put = (body: string) => ({ method: "PUT", path: entry, body, headers: json })
const batch = (body: string) => ({ method: "POST", path: "/api/v1/batch", body, headers: json })

/** Requests in order, each with the status that it gets. */
const requests: ReadonlyArray<Sent> = [
  { method: "GET", path: "/health", status: 200 },
  { method: "GET", path: "/api/v1/health", status: 200 },
  { method: "GET", path: "/api/v1/ready", status: 200 },
  { method: "GET", path: "/api/v1/ready?strict=1", status: 200 },
  { method: "GET", path: "/api/v1/ready?strict=2", status: 400 },
  { method: "GET", path: entry, status: 404 },
  { ...put('{"value":null}'), status: 200 },
  { ...put('{"value":[1],"ttlMs":60000}'), status: 200 },
  { ...put('{"value":1}'), status: 412, headers: { ...json, "if-match": '"1"' } },
  { ...put('{"value":1}'), status: 400, headers: { ...json, "if-match": "1" } },
  { ...put("{}"), status: 400 },
  { ...put("{"), status: 400 },
  { ...put('{"value":1}'), status: 415, headers: { "content-type": "text/plain" } },
  { ...put(`{"value":"${"x".repeat(1024 * 1024)}"}`), status: 413 },
  { ...put('{"value":1}'), status: 403, headers: { ...json, ...bearer(keys.read) } },
  { ...put('{"value":1}'), status: 401, headers: { ...json, ...bearer("wrong") } },
  { method: "GET", path: entry, status: 200 },
  { method: "GET", path: entry, status: 304, headers: { "if-none-match": '"2"' } },
  { method: "GET", path: entry, status: 412, headers: { "if-match": '"1"' } },
  { method: "GET", path: "/api/v1/kv/tenant%3Aacme%2Fa", status: 200 },
  { method: "GET", path: "/api/v1/kv/tenant%3Aacme%2Fa?limit=0", status: 400 },
  { method: "GET", path: "/api/v1/kv", status: 200 },
  ...(
    [
      ['{"keys":[{"namespace":"n","key":"k"}]}', 200],
      ['{"keys":[{"namespace":"n","key":"k"}],"keysOnly":true}', 200],
      ['{"keys":[{}]}', 400]
    ] as const
  ).map(([body, status]) => ({ method: "POST", path: "/api/v1/kv/read", body, headers: json, status })),
  { method: "GET", path: "/api/v1/kv?limit=1001", status: 400 },
  { ...batch('{"operations":[]}'), status: 200 },
  {
    ...batch(
      '{"operations":[{"op":"set","namespace":"n","key":"k","value":1},{"op":"delete","namespace":"n","key":"k"}]}'
    ),
    status: 200
  },
  { ...batch('{"operations":[{"op":"move"}]}'), status: 400 },
  { ...batch('{"operations":[{"op":"delete","namespace":"n","key":"k","ifVersion":9}]}'), status: 412 },
  { method: "GET", path: "/api/v1/changes", status: 200 },
  { method: "GET", path: "/api/v1/changes?after=-1", status: 400 },
  { method: "GET", path: "/api/v1/changes/ws", status: 500 },
  { method: "DELETE", path: `${entry}?actor=me`, status: 200 },
  { method: "DELETE", path: entry, status: 200 },
  { method: "DELETE", path: "/api/v1/kv/n?prefix=", status: 200 },
  { method: "DELETE", path: "/api/v1/kv/n", status: 400 },
  { method: "GET", path: "/api/v1/cluster/status", status: 200 },
  { method: "GET", path: "/api/v1/cluster/leader", status: 200 },
  { method: "POST", path: "/api/v1/cluster/join", status: 410, body: "{", headers: json },
  { method: "POST", path: "/api/v1/cluster/remove", status: 410 },
  { method: "GET", path: "/api/v1/openapi.json", status: 200 },
  { method: "GET", path: "/api/v1/openapi.json", status: 401, headers: bearer("") }
]

const send = (url: string, { method, path, headers, body }: Sent) =>
  Effect.promise(async () => {
    const response = await fetch(url + path, {
      method,
      headers: { ...bearer(keys.write), ...headers },
      ...(body === undefined ? {} : { body })
    })
    return { status: response.status, headers: response.headers, text: await response.text() }
  })

describe("the service", () => {
  test.scopedLive("answers as its description says", function* () {
    const { url } = yield* stock.serve(Memory.layer)
    for (const request of requests) {
      const at = `${request.method} ${request.path} ${request.body?.slice(0, 80) ?? ""}`
      const { status, headers, text } = yield* send(url, request)
      expect(status, `${at} ${text}`).toBe(request.status)
      const described = operationOf(request.method, request.path)?.responses
      const response = isObject(described) ? described[status] : undefined
      if (!isObject(response)) return expect.fail(`${at}: ${status} is not in the description`)
      for (const [name, header] of Object.entries((response.headers ?? {}) as Record<string, JsonObject>)) {
        if (header.required === true) expect(headers.has(name), `${at} ${status} ${name}`).toBe(true)
      }
      const media = isObject(response.content) ? response.content["application/json"] : undefined
      if (media === undefined) expect(text, at).toBe("")
      else {
        expect(headers.get("content-type"), at).toBe("application/json")
        expect(accepts((media as JsonObject).schema, JSON.parse(text)), `${at} ${text.slice(0, 200)}`).toBe(true)
      }
    }
  })
})
