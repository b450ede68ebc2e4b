import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { ReadAccess, WriteAccess } from "../Auth/Api.ts"
import {
  BadRequest,
  Gone,
  InternalServerError,
  NotFound,
  PreconditionFailed,
  ServiceUnavailable
} from "../Http/ApiError.ts"
import { JsonBody } from "../Http/JsonBody.ts"
import { Change } from "./Change.ts"
import * as Description from "./Description.ts"
import { Entry } from "./Entry.ts"

/** The most entries in a page of a list, and the most changes in a page of the log. */
export const maxPage = 1000

/** The changes in a page of the log where a request does not say. */
export const defaultPage = 100

/** The longest that a poll for changes waits, in seconds. */
export const maxWaitSeconds = 60

/** The writer that is recorded where a request names none. */
export const defaultActor = "api"

/** A name in a path: decoded once by the router, encoded here for the typed client. */
const Segment = (description: string, example: string) =>
  Schema.transform(Schema.String, Schema.String, {
    strict: true,
    decode: segment => segment,
    encode: segment => encodeURIComponent(segment)
  }).annotations({ description, jsonSchema: { type: "string", minLength: 1, description, examples: [example] } })

const Namespace = Segment("Grouping of keys, percent-encoded as one path segment.", "tenant:acme/settings")
const Key = Segment("Name within the namespace, percent-encoded as one path segment.", "theme")

/** A whole number in a query, written in digits. */
const QueryInt = (options: {
  readonly minimum: number
  readonly maximum?: number
  /** What the handler takes where the query says nothing. */
  readonly default?: number
  readonly description: string
}) => {
  const { minimum, maximum = Number.MAX_SAFE_INTEGER } = options
  const allowed =
    maximum === Number.MAX_SAFE_INTEGER
      ? `a whole number not below ${minimum}`
      : `a whole number from ${minimum} to ${maximum}`
  return Schema.transform(
    Schema.String.pipe(
      Schema.filter(text => /^\d{1,16}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum, {
        message: ({ actual }) => `must be ${allowed}, not ${JSON.stringify(actual)}`
      })
    ),
    Schema.Number,
    { strict: true, decode: Number, encode: String }
  ).annotations({
    jsonSchema: {
      type: "integer",
      minimum,
      ...(options.maximum === undefined ? {} : { maximum }),
      ...(options.default === undefined ? {} : { default: options.default }),
      description: options.description
    }
  })
}

/** A whole number in a body. */
const Whole = (options: { readonly minimum: number; readonly maximum: number; readonly description: string }) =>
  Schema.Number.pipe(
    Schema.filter(number => Number.isInteger(number) && number >= options.minimum && number <= options.maximum, {
      jsonSchema: {
        type: "integer",
        minimum: options.minimum,
        maximum: options.maximum,
        description: options.description
      }
    })
  ).annotations({
    description: options.description,
    message: ({ actual }) =>
      `must be a whole number from ${options.minimum} to ${options.maximum}, not ${JSON.stringify(actual)}`
  })

/** The last time that a JavaScript date can name, in epoch milliseconds. */
const endOfTime = 8_640_000_000_000_000

/** How long an entry lives: at most one of the two. */
const Expiry = {
  ttlMs: Schema.optionalWith(
    Whole({ minimum: 1, maximum: endOfTime, description: "The entry expires this many milliseconds from now." }),
    { exact: true }
  ),
  expiresAt: Schema.optionalWith(
    Whole({ minimum: 1, maximum: endOfTime, description: "The entry expires at this time, in epoch milliseconds." }),
    { exact: true }
  )
}

const Actor = Schema.optionalWith(
  Schema.String.annotations({
    description: "Who writes.",
    jsonSchema: { type: "string", default: defaultActor, description: "Who writes." }
  }),
  { exact: true }
)

const AnyJson = Schema.Unknown.annotations({ description: "Any JSON value." })

/** The body of a PUT. */
export const SetPayload = Schema.Struct({ value: AnyJson, actor: Actor, ...Expiry }).annotations({
  identifier: "SetRequest"
})

const IfVersion = Schema.optionalWith(
  Whole({
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    description: "The entry must be at this version; 0 means that it must be absent."
  }),
  { exact: true }
)

/** One operation of a batch. */
export const BatchOperation = Schema.Union(
  Schema.Struct({
    op: Schema.Literal("set"),
    namespace: Schema.String,
    key: Schema.String,
    value: AnyJson,
    ifVersion: IfVersion,
    ...Expiry
  }).annotations({ identifier: "SetOperation" }),
  Schema.Struct({
    op: Schema.Literal("delete"),
    namespace: Schema.String,
    key: Schema.String,
    ifVersion: IfVersion
  }).annotations({ identifier: "DeleteOperation" })
).annotations({ identifier: "BatchOperation", description: "One write." })

/** The body of a batch. */
export const BatchPayload = Schema.Struct({
  operations: Schema.Array(BatchOperation),
  actor: Actor
}).annotations({ identifier: "BatchRequest" })

/** RFC 9110 preconditions; what they may hold is checked by the handler, which knows how to say what is wrong. */
const Preconditions = Schema.Struct({
  "if-match": Schema.optionalWith(Schema.String.annotations({ description: 'A version in quotes, as in `"3"`.' }), {
    exact: true
  }),
  "if-none-match": Schema.optionalWith(
    Schema.String.annotations({ description: '`*`, or a version in quotes, as in `"3"`.' }),
    { exact: true }
  )
})

const ListParams = Schema.Struct({
  prefix: Schema.optionalWith(
    Schema.String.annotations({ description: "Only keys that start with this, literally." }),
    {
      exact: true
    }
  ),
  limit: Schema.optionalWith(
    QueryInt({ minimum: 1, maximum: maxPage, description: "Entries in a page; without it all come in one answer." }),
    { exact: true }
  ),
  cursor: Schema.optionalWith(
    Schema.String.annotations({ description: "Where the page starts, from the Link header of the one before." }),
    { exact: true }
  )
})

const after = Schema.optionalWith(
  QueryInt({ minimum: 0, default: 0, description: "Only changes with a greater seq." }),
  { exact: true }
)

const tenant = Schema.optionalWith(
  Schema.String.annotations({
    jsonSchema: { type: "string", default: "", description: "Only changes of this tenant; of all when empty." }
  }),
  { exact: true }
)

const limit = Schema.optionalWith(
  QueryInt({
    minimum: 1,
    default: defaultPage,
    description: `Most changes in one answer; more than ${maxPage} is taken for ${maxPage}.`
  }),
  { exact: true }
)

const ChangesParams = Schema.Struct({
  tenant,
  after,
  limit,
  wait: Schema.optionalWith(
    QueryInt({
      minimum: 0,
      maximum: maxWaitSeconds,
      default: 0,
      description: "Seconds to wait for a change where there is none yet."
    }),
    { exact: true }
  )
})

const changesSuccess = Schema.Struct({
  changes: Schema.Array(Change),
  lastSeq: Schema.Int.annotations({ description: "The last seq scanned: pass it as the next `after`." })
}).annotations({ identifier: "ChangePage" })

const SetResult = Schema.Struct({
  version: Schema.Int.annotations({ description: "The version that the entry has now." })
}).annotations({ identifier: "SetResult" })

const DeleteResult = Schema.Struct({
  deleted: Schema.Boolean.annotations({ description: "False where there was no entry; nothing is recorded then." })
}).annotations({ identifier: "DeleteResult" })

const BatchResult = Schema.Struct({
  ok: Schema.Boolean,
  results: Schema.Array(
    Schema.Union(SetResult, DeleteResult).annotations({ identifier: "OperationResult" })
  ).annotations({ description: "One for each operation, in order." })
}).annotations({ identifier: "BatchResult" })

const EventStream = Schema.String.pipe(
  HttpApiSchema.withEncoding({ kind: "Text", contentType: "text/event-stream" })
).annotations({ description: "Server-Sent Events: `id` is the seq, `data` a change." })

const path = Schema.Struct({ namespace: Namespace, key: Key })

/** Entries, batches and the change feed, under `/api/v1`. */
export const KvGroup = HttpApiGroup.make("kv")
  .add(
    HttpApiEndpoint.get("list", "/kv/:namespace")
      .setPath(Schema.Struct({ namespace: Namespace }))
      .setUrlParams(ListParams)
      .addSuccess(Schema.Struct({ items: Schema.Array(Entry) }).annotations({ identifier: "EntryList" }))
      .addError(BadRequest.Wire)
      .annotate(OpenApi.Transform, Description.list)
      .annotate(OpenApi.Summary, "List the entries of a namespace")
      .annotate(
        OpenApi.Description,
        "In byte order of the UTF-8 key. `Kv-Last-Seq` has the log position that the list was read at; with `limit`, a `Link` header leads to the next page while there is one."
      )
  )
  .add(
    HttpApiEndpoint.get("get", "/kv/:namespace/:key")
      .setPath(path)
      .setHeaders(Preconditions)
      .addSuccess(Entry)
      .addSuccess(HttpApiSchema.Empty(304).annotations({ description: "The entry is at a version in If-None-Match." }))
      .addError(BadRequest.Wire)
      .addError(NotFound.Wire)
      .addError(PreconditionFailed.Wire)
      .annotate(OpenApi.Transform, Description.get)
      .annotate(OpenApi.Summary, "Read an entry")
      .annotate(OpenApi.Description, "`ETag` has the version in quotes.")
  )
  .add(
    HttpApiEndpoint.put("set", "/kv/:namespace/:key")
      .setPath(path)
      .setHeaders(Preconditions)
      .setPayload(SetPayload)
      .addSuccess(Entry)
      .addError(BadRequest.Wire)
      .addError(PreconditionFailed.Wire)
      .middleware(JsonBody)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.set)
      .annotate(OpenApi.Summary, "Set an entry")
      .annotate(OpenApi.Description, "Replaces the entry whole, its expiry included. `ETag` has the new version.")
  )
  .add(
    HttpApiEndpoint.del("delete", "/kv/:namespace/:key")
      .setPath(path)
      .setHeaders(Preconditions)
      .setUrlParams(Schema.Struct({ actor: Actor }))
      .addSuccess(DeleteResult)
      .addError(BadRequest.Wire)
      .addError(PreconditionFailed.Wire)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.remove)
      .annotate(OpenApi.Summary, "Delete an entry")
      .annotate(OpenApi.Description, "`deleted` is false where there was none; nothing is recorded then.")
  )
  .add(
    HttpApiEndpoint.post("batch", "/batch")
      .setPayload(BatchPayload)
      .addSuccess(BatchResult)
      .addError(BadRequest.Wire)
      .addError(PreconditionFailed.Wire)
      .middleware(JsonBody)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.batch)
      .annotate(OpenApi.Summary, "Apply operations atomically, in order")
      .annotate(OpenApi.Description, "All are applied, with consecutive seq, or none is.")
  )
  .add(
    HttpApiEndpoint.get("changes", "/changes")
      .setUrlParams(ChangesParams)
      .addSuccess(changesSuccess)
      .addError(BadRequest.Wire)
      .addError(Gone.Wire)
      .annotate(OpenApi.Transform, Description.changes)
      .annotate(OpenApi.Summary, "Poll the change log")
      .annotate(
        OpenApi.Description,
        "In ascending seq. A `lastSeq` below `after` means that the log was reset: list again."
      )
  )
  .add(
    HttpApiEndpoint.get("changesStream", "/changes/stream")
      .setUrlParams(Schema.Struct({ tenant, after, limit }))
      .setHeaders(
        Schema.Struct({
          "last-event-id": Schema.optionalWith(
            Schema.String.annotations({ description: "Resumes after this seq; it wins over `after`." }),
            { exact: true }
          )
        })
      )
      .addSuccess(EventStream)
      .addError(BadRequest.Wire)
      .addError(Gone.Wire)
      .annotate(OpenApi.Transform, Description.changesStream)
      .annotate(OpenApi.Summary, "Follow the change log by Server-Sent Events")
      .annotate(OpenApi.Description, "A comment every 15 seconds keeps the connection alive.")
  )
  .add(
    HttpApiEndpoint.get("changesSocket", "/changes/ws")
      .setUrlParams(Schema.Struct({ tenant, after, limit }))
      .addSuccess(HttpApiSchema.Empty(101).annotations({ description: "The connection is a WebSocket now." }))
      .addError(BadRequest.Wire)
      .addError(Gone.Wire)
      .annotate(OpenApi.Transform, Description.changesSocket)
      .annotate(OpenApi.Summary, "Follow the change log by WebSocket")
      .annotate(
        OpenApi.Description,
        'Frames: `{"type":"changes","changes":[…],"lastSeq":n}` and, when idle for 15 seconds, `{"type":"heartbeat","lastSeq":n}`. Close code 4008: the client did not drain; resume with `after`. A request that is no WebSocket handshake is answered 500.'
      )
  )
  .addError(InternalServerError.Wire)
  .addError(ServiceUnavailable.Wire)
  .middleware(ReadAccess)
  .prefix("/api/v1")
  .annotate(OpenApi.Title, "Key-value")
  .annotate(OpenApi.Description, "Versioned entries, atomic batches and the change log.")
