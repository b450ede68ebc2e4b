/** `causeway health` and `causeway openapi`. */
import { Effect, Option } from "effect"
import { textOf } from "../Client/Errors.ts"
import { json } from "../Client/Requests.ts"
import { CommandFailed, exitCodes, failed } from "./CommandFailed.ts"
import { flag } from "./CommandOptions.ts"
import * as Connection from "./Connection.ts"
import { Command } from "./Library.ts"
import { ask } from "./Service.ts"
import { answer, list, Output, table, writeJson } from "./Terminal/Output.ts"

interface Dependency {
  readonly name: string
  readonly status: string
  readonly latencyMs?: number
  readonly error?: string
}

interface Report {
  readonly status: string
  /** Milliseconds. */
  readonly uptime: number
  readonly version: string
  readonly dependencies: ReadonlyArray<Dependency>
}

const readReport = json<Report>(
  ({ dependencies, status, version }) =>
    typeof status === "string" && typeof version === "string" && Array.isArray(dependencies)
)

const readReady = json<{ readonly ok: boolean }>(({ ok }) => typeof ok === "boolean")

const duration = (milliseconds: number): string => {
  const minutes = Math.floor(milliseconds / 60_000)
  if (minutes < 1) return `${Math.floor(milliseconds / 1000)} s`
  const hours = Math.floor(minutes / 60)
  if (hours < 1) return `${minutes} min`
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`
}

const describe = (ready: boolean, { dependencies, status, uptime, version }: Report, cells: number): string =>
  list([
    ["store", ready ? "ready" : "unavailable"],
    ["status", status],
    ["version", version],
    ["up for", duration(uptime)]
  ]) +
  (dependencies.length === 0
    ? ""
    : `\n${table(
        [
          { title: "DEPENDENCY" },
          { title: "STATUS" },
          { title: "LATENCY", align: "right" },
          { title: "PROBLEM", shrinks: true }
        ],
        dependencies.map(({ error = "", latencyMs, name, status }) => [
          name,
          status,
          latencyMs === undefined ? "" : `${Math.round(latencyMs)} ms`,
          error
        ]),
        cells
      )}`)

/** `causeway health`. Exit code 1 if the service is not well. */
export const health = Command.make(
  "health",
  {
    strict: flag("strict", "Fail also if a dependency of the service is not well"),
    ...Connection.options
  },
  ({ strict, ...options }) =>
    Effect.gen(function* () {
      const connection = yield* Connection.withoutCredential(options)
      const ready = (yield* ask(connection, { path: "/ready" }, readReady)).ok
      // A report with status 503 means that a dependency is not well.
      const report = yield* ask(connection, { prefix: "", path: "/health", accepts: 503 }, readReport)
      const { cells } = yield* Output
      yield* answer(options.json, { ready, ...report }, () => describe(ready, report, cells()))
      const isWell = ready && (!strict || report.status === "ok")
      if (!isWell) {
        return yield* new CommandFailed({
          message: ready ? `The service is ${report.status}` : "The store is unavailable",
          hint: "The log of the service has the reason.",
          exitCode: exitCodes.failed
        })
      }
    })
).pipe(Command.withDescription("Check whether the service is well; the exit code is 0 if its store is ready"))

const isDocument = (text: string, member: string): boolean => {
  const found = Option.getOrUndefined(Option.liftThrowable((text: string): unknown => JSON.parse(text))(text))
  return typeof found === "object" && found !== null && member in found
}

/** The documents of this version. They need no service. */
export interface Documents {
  readonly openApi: Effect.Effect<string>
  readonly asyncApi: Effect.Effect<string>
}

/** `causeway openapi`. */
export const openapi = (documents: Documents) =>
  Command.make(
    "openapi",
    {
      asyncapi: flag("asyncapi", "The AsyncAPI document of the WebSockets"),
      fromService: flag("from-service", "The document of the service; default that of this version"),
      ...Connection.options
    },
    ({ asyncapi, fromService, ...options }) =>
      Effect.gen(function* () {
        const ofService = Effect.gen(function* () {
          const connection = yield* Connection.resolve(options)
          const name = asyncapi ? "AsyncAPI" : "OpenAPI"
          const text = yield* ask(connection, { path: `/${name.toLowerCase()}.json` }, textOf)
          if (isDocument(text, name.toLowerCase())) return text
          const message = `${connection.url}: the answer is not an ${name} document`
          return yield* failed(message, "Is this the address of a Causeway service?")
        })
        const text = yield* fromService ? ofService : asyncapi ? documents.asyncApi : documents.openApi
        const { isTerminal } = yield* Output
        // A service may send white space that moves the cursor.
        yield* writeJson(isTerminal ? `${JSON.stringify(JSON.parse(text), null, options.json ? 0 : 2)}\n` : `${text}\n`)
      })
  ).pipe(Command.withDescription("Print the OpenAPI document"))
