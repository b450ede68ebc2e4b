/**
 * What our contracts have in addition to `HttpApi`: annotations of endpoints with a JSON body, of our groups, and of
 * texts that are decoded as they are; and flags in queries.
 */
import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Context, Schema, type SchemaAST } from "effect"
import { PayloadTooLarge, ServiceUnavailable, UnsupportedMediaType } from "./ApiError.ts"

/**
 * Marks an endpoint with a JSON body, which is read within limits and may keep members as text.
 *
 * The body is read only when the decoder asks for it, so that unauthorized requests are refused first.
 */
export class JsonBody extends HttpApiMiddleware.Tag<JsonBody>()("causeway/JsonBody", {
  provides: HttpServerRequest.HttpServerRequest,
  failure: Schema.Union(PayloadTooLarge.Wire, UnsupportedMediaType.Wire, ServiceUnavailable.Wire)
}) {}

/**
 * Marks an endpoint whose body is a JSON object within {@link objectLimits}; an empty body is an empty object. Members
 * are values, not texts.
 *
 * As for {@link JsonBody}, the body is read after authentication.
 */
export class ObjectBody extends HttpApiMiddleware.Tag<ObjectBody>()("causeway/ObjectBody", {
  provides: HttpServerRequest.HttpServerRequest,
  failure: Schema.Union(PayloadTooLarge.Wire, UnsupportedMediaType.Wire, ServiceUnavailable.Wire)
}) {}

/** The limits of the bodies of {@link ObjectBody}: bytes, levels below the body itself, and members of all values. */
export const objectLimits = { bytes: 1024 * 1024, levels: 256, members: 65_536 } as const

/** The same as {@link ObjectBody} with {@link historyLimits}, for clients that send the history with each message. */
export class HistoryBody extends HttpApiMiddleware.Tag<HistoryBody>()("causeway/HistoryBody", {
  provides: HttpServerRequest.HttpServerRequest,
  failure: Schema.Union(PayloadTooLarge.Wire, UnsupportedMediaType.Wire, ServiceUnavailable.Wire)
}) {}

/** The limits of the bodies of {@link HistoryBody}. A conversation has at most 8 Mi characters. */
export const historyLimits = { bytes: 16 * 1024 * 1024, levels: 256, members: 262_144 } as const

/** Annotates a group with its part of this service; `Causeway.layer` uses it to find the group in any api. */
export class Part extends Context.Tag("causeway/Part")<Part, string>() {}

/**
 * Annotates an endpoint, or a group, with what figures of the service must know of its requests:
 *
 * - `monitoring`: probes, scrapes and pages. They are not work that the service does for its users.
 * - `stream`: it lasts as long as its client or a turn wants, as a stream, a long poll or a WebSocket. Its duration says
 *   nothing about the service.
 * - `read`: it reads entries.
 */
export class RouteKind extends Context.Tag("causeway/RouteKind")<RouteKind, "monitoring" | "stream" | "read">() {}

const decodedAsGiven = Symbol.for("causeway/DecodedAsGiven")

/** Annotates a transformation that decodes every text as itself. */
export const decodesAsGiven: Readonly<Record<symbol, true>> = { [decodedAsGiven]: true }

/** Whether a schema has {@link decodesAsGiven}. */
export const isDecodedAsGiven = ({ annotations }: SchemaAST.AST): boolean => annotations[decodedAsGiven] === true

/** A query parameter that is switched on by `1`. */
export const flag = (description: string) =>
  Schema.optionalWith(
    Schema.Literal("0", "1").annotations({
      description,
      message: ({ actual }) => ({ message: `must be 0 or 1, not ${JSON.stringify(actual)}`, override: true })
    }),
    { exact: true }
  )

/** One issue of a schema decoder, as `ParseResult.ArrayFormatter` gives it. */
export interface Issue {
  readonly _tag: string
  readonly path: ReadonlyArray<PropertyKey>
  readonly message: string
}

/** Maximum number of issues in one message. */
const maxIssues = 3

/** Maximum number of characters of each. */
const maxLength = 300

/** A path as JavaScript would write it: `operations[3].op`. */
const shown = (path: ReadonlyArray<PropertyKey>): string =>
  path
    .map((part, index) => (typeof part === "number" ? `[${part}]` : `${index === 0 ? "" : "."}${String(part)}`))
    .join("")

/** The problem with a request, in one sentence for its client: the first issues, each with its path. */
export const describe = (issues: ReadonlyArray<Issue>): string => {
  const sentences = issues.slice(0, maxIssues).map(({ message, path }) => {
    const short = message.length > maxLength ? `${message.slice(0, maxLength)}…` : message
    return path.length === 0 ? short : `${shown(path)}: ${short}`
  })
  return `Invalid request: ${sentences.join("; ")}`
}
