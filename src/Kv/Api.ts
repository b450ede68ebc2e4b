/** The contract of the key-value store: its endpoints, and entries and changes as clients see them. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import {
  BadRequest,
  Conflict,
  Forbidden,
  Gone,
  InsufficientStorage,
  InternalServerError,
  NotFound,
  NotImplemented,
  PreconditionFailed,
  ServiceUnavailable,
  UnprocessableContent
} from "../Http/ApiError.ts"
import { ReadAccess, WriteAccess } from "../Http/Auth/Api.ts"
import { JsonBody, Part, RouteKind } from "../Http/Contract.ts"
import * as Description from "./Description.ts"
import {
  BatchHeaders,
  BatchPayload,
  ChangesParams,
  DeleteParams,
  EntryPath,
  FollowParams,
  ListParams,
  NamespacePath,
  NamespacesParams,
  Preconditions,
  ReadPayload,
  RemoveHeaders,
  RemoveParams,
  ResumeHeaders,
  SetPayload,
  TenantsParams,
  WriteHeaders
} from "./Requests.ts"

const Millis = Schema.Int.annotations({ description: "Epoch milliseconds." })

/** An entry as clients see it. */
export const Entry = Schema.Struct({
  namespace: Schema.String,
  key: Schema.String,
  value: Schema.Unknown.annotations({ description: "Any JSON value." }),
  version: Schema.Int.annotations({
    description:
      "1 for a new key. Every set and delete increments it. A key whose deletion the change log no longer keeps begins at 1 again."
  }),
  updatedBy: Schema.String.annotations({ description: "The actor that last wrote the entry." }),
  updatedAt: Millis,
  expiresAt: Schema.NullOr(Millis).annotations({
    description: "Epoch milliseconds, or null when the entry does not expire."
  })
}).annotations({
  identifier: "Entry",
  description: "A versioned JSON value, addressed by namespace and key.",
  examples: [Description.entry]
})

const ListedEntry = Schema.Struct({
  ...Entry.fields,
  value: Schema.optionalWith(Schema.Unknown.annotations({ description: "Any JSON value. Absent with `keysOnly`." }), {
    exact: true
  })
}).annotations({
  identifier: "ListedEntry",
  description: "An entry, with `keysOnly` without its value.",
  examples: [Description.entry]
})

/** A change record as clients see it. */
export const Change = Schema.Struct({
  seq: Schema.Int.annotations({ description: "Position in the global log. It increases by 1 with each change." }),
  op: Schema.Literal("set", "delete"),
  namespace: Schema.String,
  key: Schema.String,
  value: Schema.Unknown.annotations({ description: "The value that was set, or null for a delete." }),
  version: Schema.Int.annotations({ description: "The version that this write gave the entry." }),
  actor: Schema.String.annotations({ description: "Who wrote. `expiry` for an entry that expired." }),
  timestamp: Schema.Int.annotations({ description: "Epoch milliseconds. It never decreases as `seq` increases." }),
  tenantId: Schema.String.annotations({ description: "The tenant of the namespace, or the empty string." })
}).annotations({ identifier: "Change", description: "One set or delete.", examples: [Description.change] })

const ChangePage = Schema.Struct({
  changes: Schema.Array(Change),
  lastSeq: Schema.Int.annotations({ description: "The last `seq` scanned. Pass it as the next `after`." })
}).annotations({ identifier: "ChangePage" })

/** The errors of every request that writes entries. */
const WriteErrors = Schema.Union(BadRequest.Wire, Conflict.Wire, UnprocessableContent.Wire)

const SetResult = Schema.Struct({
  version: Schema.Int.annotations({ description: "The new version of the entry." })
}).annotations({ identifier: "SetResult" })

const DeleteResult = Schema.Struct({
  deleted: Schema.Boolean.annotations({
    description: "False if there was no entry. In that case no change is recorded."
  })
}).annotations({ identifier: "DeleteResult" })

const RemoveResult = Schema.Struct({
  deleted: Schema.Boolean.annotations({ description: "Whether there were entries to delete." }),
  count: Schema.Int.annotations({ description: "How many were deleted." }),
  more: Schema.Boolean.annotations({ description: "Whether there are more, beyond `limit`." })
}).annotations({ identifier: "RemoveResult" })

const BatchResult = Schema.Struct({
  ok: Schema.Boolean,
  results: Schema.Array(
    Schema.Union(SetResult, DeleteResult).annotations({ identifier: "OperationResult" })
  ).annotations({ description: "One for each operation, in order." })
}).annotations({ identifier: "BatchResult" })

const EventStream = Schema.String.pipe(
  HttpApiSchema.withEncoding({ kind: "Text", contentType: "text/event-stream" })
).annotations({ description: "Server-Sent Events. `data` is a change. `id` is opaque." })

const SqliteFile = HttpApiSchema.Uint8Array({ contentType: "application/vnd.sqlite3" }).annotations({
  description: "A SQLite database."
})

const NamespaceCount = Schema.Struct({
  namespace: Schema.String,
  count: Schema.Int.annotations({ description: "How many entries it has, 1 or more." })
}).annotations({ identifier: "NamespaceCount" })

const TenantCount = Schema.Struct({
  tenant: Schema.String.annotations({
    description: "Its id, or the empty string for all namespaces that belong to no tenant."
  }),
  namespaces: Schema.Int.annotations({ description: "How many namespaces it has, 1 or more." }),
  entries: Schema.Int.annotations({ description: "How many entries these have together." })
}).annotations({ identifier: "TenantCount" })

/** Entries, batches and the change feed, under any prefix. */
export const KvRoutes = HttpApiGroup.make("kv")
  .add(
    HttpApiEndpoint.get("namespaces", "/kv")
      .setUrlParams(NamespacesParams)
      .addSuccess(
        Schema.Struct({ namespaces: Schema.Array(NamespaceCount) }).annotations({ identifier: "NamespaceList" })
      )
      .addError(BadRequest.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.namespaces)
      .annotate(RouteKind, "read")
  )
  .add(
    HttpApiEndpoint.get("tenants", "/tenants")
      .setUrlParams(TenantsParams)
      .addSuccess(Schema.Struct({ tenants: Schema.Array(TenantCount) }).annotations({ identifier: "TenantList" }))
      .addError(BadRequest.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.tenants)
  )
  .add(
    HttpApiEndpoint.get("list", "/kv/:namespace")
      .setPath(NamespacePath)
      .setUrlParams(ListParams)
      .addSuccess(Schema.Struct({ items: Schema.Array(ListedEntry) }).annotations({ identifier: "EntryList" }))
      .addError(BadRequest.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.list)
      .annotate(RouteKind, "read")
  )
  .add(
    HttpApiEndpoint.get("get", "/kv/:namespace/:key")
      .setPath(EntryPath)
      .setHeaders(Preconditions)
      .addSuccess(Entry)
      .addSuccess(HttpApiSchema.Empty(304).annotations({ description: "The entry is at a version in If-None-Match." }))
      .addError(BadRequest.Wire)
      .addError(NotFound.Wire)
      .addError(PreconditionFailed.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.get)
      .annotate(RouteKind, "read")
  )
  .add(
    HttpApiEndpoint.put("set", "/kv/:namespace/:key")
      .setPath(EntryPath)
      .setHeaders(WriteHeaders)
      .setPayload(SetPayload)
      .addSuccess(Entry)
      .addError(WriteErrors)
      .addError(PreconditionFailed.Wire)
      .middleware(JsonBody)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.set)
  )
  .add(
    HttpApiEndpoint.del("delete", "/kv/:namespace/:key")
      .setPath(EntryPath)
      .setHeaders(WriteHeaders)
      .setUrlParams(DeleteParams)
      .addSuccess(DeleteResult)
      .addError(WriteErrors)
      .addError(PreconditionFailed.Wire)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.remove)
  )
  .add(
    HttpApiEndpoint.del("removePrefix", "/kv/:namespace")
      .setPath(NamespacePath)
      .setHeaders(RemoveHeaders)
      .setUrlParams(RemoveParams)
      .addSuccess(RemoveResult)
      .addError(WriteErrors)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.removePrefix)
  )
  .add(
    HttpApiEndpoint.post("read", "/kv/read")
      .setPayload(ReadPayload)
      .addSuccess(
        Schema.Struct({
          items: Schema.Array(Schema.NullOr(ListedEntry)).annotations({ description: "One for each key, in order." })
        }).annotations({ identifier: "ReadResult" })
      )
      .addError(BadRequest.Wire)
      .middleware(JsonBody)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.read)
      .annotate(RouteKind, "read")
  )
  .add(
    HttpApiEndpoint.post("batch", "/batch")
      .setHeaders(BatchHeaders)
      .setPayload(BatchPayload)
      .addSuccess(BatchResult)
      .addError(WriteErrors)
      .addError(PreconditionFailed.Wire)
      .middleware(JsonBody)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.batch)
  )
  .add(
    HttpApiEndpoint.get("backup", "/backup")
      .addSuccess(SqliteFile)
      .addError(NotImplemented.Wire)
      .addError(InsufficientStorage.Wire)
      .middleware(WriteAccess)
      .annotate(OpenApi.Transform, Description.backup)
  )
  .add(
    HttpApiEndpoint.get("changes", "/changes")
      .setUrlParams(ChangesParams)
      .addSuccess(ChangePage)
      .addError(BadRequest.Wire)
      .addError(Gone.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.changes)
      .annotate(RouteKind, "stream")
  )
  .add(
    HttpApiEndpoint.get("changesStream", "/changes/stream")
      .setUrlParams(FollowParams)
      .setHeaders(ResumeHeaders)
      .addSuccess(EventStream)
      .addError(BadRequest.Wire)
      .addError(Gone.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.changesStream)
      .annotate(RouteKind, "stream")
  )
  .add(
    HttpApiEndpoint.get("changesSocket", "/changes/ws")
      .setUrlParams(FollowParams)
      .addSuccess(HttpApiSchema.Empty(101).annotations({ description: "The connection is a WebSocket now." }))
      .addError(BadRequest.Wire)
      .addError(Forbidden.Wire)
      .addError(Gone.Wire)
      .middleware(ReadAccess)
      .annotate(OpenApi.Transform, Description.changesSocket)
      .annotate(RouteKind, "stream")
  )
  .addError(InternalServerError.Wire)
  .addError(ServiceUnavailable.Wire)
  .annotate(Part, "kv")
  .annotate(OpenApi.Title, "Key-value")
  .annotate(OpenApi.Description, "Versioned entries, atomic batches and the change log.")

/** The same under `/api/v1`. */
export const KvGroup = KvRoutes.prefix("/api/v1")
