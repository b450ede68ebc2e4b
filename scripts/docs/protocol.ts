/** Writes the generated parts of docs/reference/protocol.md from the schemas of the protocol. */
import { readFileSync, writeFileSync } from "node:fs"
import * as AsyncApi from "../../src/app/AsyncApi.ts"
import { isObject, type JsonObject } from "../../src/base/Json/Parsing.ts"
import * as EventMapping from "../../src/Gateway/EventMapping.ts"
import * as Examples from "../../src/Gateway/Protocol/Examples.ts"
import { schemaName } from "../../src/Gateway/Protocol/Fields.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"
import { table } from "./Markdown.ts"

const page = new URL("../../docs/reference/protocol.md", import.meta.url)

const code = (text: string): string => `\`${text}\``

const count = (figure: number): string => figure.toLocaleString("en-US")

/** The names of the fields of an object; the AsyncAPI document has their types and meanings. */
const fields = (schema: unknown, without: ReadonlyArray<string>): string => {
  if (!isObject(schema) || !isObject(schema.properties)) return ""
  const required = new Set(Array.isArray(schema.required) ? schema.required : [])
  return Object.keys(schema.properties)
    .filter(name => !without.includes(name))
    .map(name => code(required.has(name) ? name : `${name}?`))
    .join(", ")
}

const schemas = (): JsonObject => AsyncApi.document().components.schemas

const fieldsOf = (name: string, ...without: ReadonlyArray<string>): string => fields(schemas()[name], without)

const meaning = (name: string): string => {
  const schema = schemas()[name]
  return isObject(schema) && typeof schema.description === "string" ? schema.description : ""
}

const requests = (): string =>
  table(
    ["request", "meaning", "fields", "answer"],
    Protocol.requestTypes.map(type => {
      const name = schemaName(type, "Request")
      return [code(type), meaning(name), fieldsOf(name, "type", "id"), code(Protocol.answerTypes[type])]
    })
  )

const answers = (): string =>
  table(
    ["answer", "fields"],
    Object.keys(Examples.answers).map(type => [code(type), fieldsOf(schemaName(type, "Answer"), "type", "id")])
  )

const events = (): string =>
  table(
    ["event", "fields"],
    Protocol.eventTypes.map(type => [code(type), fieldsOf(schemaName(type, "Event"), "type", "turnId")])
  )

const errors = (): string =>
  table(
    ["code", "retryable", "meaning", "`retryable` otherwise"],
    Object.entries(Protocol.errorMeanings).map(([name, { retryable, meaning, otherwise }]) => [
      code(name),
      retryable ? "yes" : "no",
      meaning,
      otherwise ?? ""
    ])
  )

const closeCodes = (): string =>
  table(
    ["code", "reason", "connect again", "meaning"],
    Object.values(Protocol.closeCodes).map(({ code, name, reconnect, meaning }) => [
      String(code),
      name,
      reconnect ? "yes" : "no",
      meaning
    ])
  )

const limits = (): string => {
  const { Limits } = Protocol
  return table(
    ["limit", "value"],
    [
      ["bytes of a frame from a client", Limits.frameBytes],
      ["requests in flight", Limits.requestsInFlight],
      ["frames from a client in a second", Limits.messagesPerSecond],
      ["subscriptions of a connection", Limits.subscriptions],
      ["characters of a request's `id`", Limits.requestIdChars],
      ["levels of arrays and objects in a JSON value", Limits.jsonDepth],
      ["members of objects and elements of arrays in a frame from a client, all together", Limits.jsonMembers],
      ["names in `environment`, and in `secrets`", Limits.variables],
      ["bytes of `environment` and `secrets` together, names and values", Limits.environmentBytes],
      ["bytes of `deployment` as JSON", Limits.deploymentBytes],
      ["sessions in one answer to `list_sessions`", Limits.listedSessions],
      ["characters of text in a delta; longer ones come in several", EventMapping.longestDelta]
    ].map(([what, figure]) => [String(what), typeof figure === "number" ? count(figure) : String(figure)])
  )
}

/** The parts by name. */
const parts: Readonly<Record<string, () => string>> = {
  requests,
  answers,
  envelope: () => fieldsOf("EventEnvelope"),
  events,
  session: () => fieldsOf("Session"),
  states: () => Protocol.SessionState.literals.map(code).join(", "),
  errors,
  "close codes": closeCodes,
  limits
}

/** The page with all generated parts rewritten. */
export const render = (page: string): string => {
  const seen = new Set<string>()
  const rendered = page.replace(
    /<!-- generated: ([a-z ]+) -->\n[\s\S]*?<!-- end -->/g,
    (whole: string, name: string): string => {
      const part = parts[name]
      if (part === undefined) throw new Error(`There is no part ${JSON.stringify(name)}`)
      seen.add(name)
      return `${whole.slice(0, whole.indexOf("\n"))}\n${part()}\n<!-- end -->`
    }
  )
  const missing = Object.keys(parts).filter(name => !seen.has(name))
  if (missing.length > 0) throw new Error(`The page has no place for: ${missing.join(", ")}`)
  return rendered
}

if (process.argv[1] === import.meta.filename) writeFileSync(page, render(readFileSync(page, "utf8")))
