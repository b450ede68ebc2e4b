/**
 * Schemas of requests for entries: paths, queries, headers and bodies.
 */
import { Schema } from "effect"
import { withFastDecoder } from "../Http/Contract.ts"
import { Flag } from "../Http/Flag.ts"
import { fastBatchPayload, fastPath, fastSetPayload, headersWithout } from "./FastDecoders.ts"
import { Misplaced, optional, QueryInt, strict, strictBut, Whole } from "./Fields.ts"
import { idempotency } from "./IdempotencyHeader.ts"

/** The maximum number of entries in a page of a list, and of changes in a page of the log. */
export const maxPage = 1000

/** The response header with the epoch of the log. */
export const epochHeader = "kv-epoch"

/** The response header with the last trimmed `seq`, if a reader has asked for older changes. */
export const trimmedHeader = "kv-trimmed-seq"

/** The actor of requests that name none. */
export const defaultActor = "api"

/** A name in a path. The router decodes it once; the typed client encodes it here. */
const Segment = (description: string, example: string) =>
  Schema.transform(Schema.String, Schema.String, {
    strict: true,
    decode: segment => segment,
    encode: segment => encodeURIComponent(segment)
  }).annotations({ description, jsonSchema: { type: "string", minLength: 1, description, examples: [example] } })

const Namespace = Segment("Grouping of keys, percent-encoded as one path segment.", "tenant:acme/settings")
const Key = Segment("Name within the namespace, percent-encoded as one path segment.", "theme")

/** The latest time of a JavaScript date, in epoch milliseconds. */
export const endOfTime = 8_640_000_000_000_000

/** When an entry expires: at most one of the two. */
const Expiry = {
  ttlMs: optional(
    Whole({ minimum: 1, maximum: endOfTime, description: "The entry expires this many milliseconds from now." })
  ),
  expiresAt: optional(
    Whole({ minimum: 1, maximum: endOfTime, description: "The entry expires at this time, in epoch milliseconds." })
  )
}

// Not a `default` of the schema: some generators would make the member required.
const Actor = optional(Schema.String.annotations({ description: `Who writes; \`${defaultActor}\` if left out.` }))

const AnyJson = Schema.Unknown.annotations({ description: "Any JSON value." })

/** The body of a PUT. */
export const SetPayload = Schema.Struct({ value: AnyJson, actor: Actor, ...Expiry }).annotations({
  identifier: "SetRequest",
  ...strictBut({ ifVersion: "use the header If-Match, or If-None-Match: * for an entry that must be absent" }),
  ...withFastDecoder(fastSetPayload)
})

const IfVersion = optional(
  Whole({
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    description: "The entry must be at this version. 0 means that it must be absent."
  })
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
  }).annotations({ identifier: "SetOperation", ...strict }),
  Schema.Struct({
    op: Schema.Literal("delete"),
    namespace: Schema.String,
    key: Schema.String,
    value: optional(Schema.Unknown.annotations({ description: "Ignored." })),
    ifVersion: IfVersion
  }).annotations({ identifier: "DeleteOperation", ...strict })
).annotations({ identifier: "BatchOperation", description: "One write." })

/** The body of a batch. */
export const BatchPayload = Schema.Struct({ operations: Schema.Array(BatchOperation), actor: Actor }).annotations({
  identifier: "BatchRequest",
  ...strictBut({ ifVersion: "use ifVersion of an operation" }),
  ...withFastDecoder(fastBatchPayload)
})

/** The body of a read of several keys. */
export const ReadPayload = Schema.Struct({
  keys: Schema.Array(
    Schema.Struct({ namespace: Schema.String, key: Schema.String }).annotations({
      identifier: "EntryAddress",
      ...strict
    })
  ),
  keysOnly: optional(Schema.Boolean.annotations({ description: "With `true`, entries come without `value`." }))
}).annotations({ identifier: "ReadRequest", ...strict })

/** The headers of a batch. Its operations have their own preconditions. */
export const BatchHeaders = Schema.Struct({
  "if-match": Misplaced("use ifVersion of an operation"),
  "if-none-match": Misplaced("use ifVersion of an operation, 0 for an entry that must be absent"),
  ...idempotency
}).annotations(withFastDecoder(headersWithout("if-match", "if-none-match", "idempotency-key")))

const conditions = {
  "if-match": optional(Schema.String.annotations({ description: 'A version in quotes, as in `"3"`.' })),
  "if-none-match": optional(Schema.String.annotations({ description: '`*`, or a version in quotes, as in `"3"`.' }))
}

/** RFC 9110 preconditions. The handler checks their values. */
export const Preconditions = Schema.Struct(conditions).annotations(
  withFastDecoder(headersWithout("if-match", "if-none-match"))
)

/** The headers of a PUT and of a DELETE. */
export const WriteHeaders = Schema.Struct({ ...conditions, ...idempotency }).annotations(
  withFastDecoder(headersWithout("if-match", "if-none-match", "idempotency-key"))
)

/** The query of a list. */
export const ListParams = Schema.Struct({
  prefix: optional(Schema.String.annotations({ description: "Only keys with this literal prefix." })),
  start: optional(Schema.String.annotations({ description: "Only this key and those after it." })),
  end: optional(Schema.String.annotations({ description: "Only keys before this one." })),
  reverse: Flag("With `1`, from the last key to the first."),
  keysOnly: Flag("With `1`, entries come without `value`."),
  count: Flag(
    "With `1`, `Kv-Count` is how many entries `prefix`, `start` and `end` select, whatever `limit` and `cursor` are."
  ),
  limit: optional(
    QueryInt({
      minimum: 1,
      maximum: maxPage,
      description: "The size of a page. Without it, all entries are in one response."
    })
  ),
  cursor: optional(
    Schema.String.annotations({
      description:
        "The start of the page, from the `Link` header of the previous one. It requires the same `prefix`, `start`, `end` and `reverse`."
    })
  )
})

/** The size of a page of names: at most 1,000. */
const pageLimit = optional(
  QueryInt({ minimum: 1, maximum: maxPage, default: maxPage, description: "The size of a page." })
)

const pageCursor = (goesWith: string) =>
  optional(
    Schema.String.annotations({
      description: `The start of the page, from the \`Link\` header of the previous one. It requires the same ${goesWith}.`
    })
  )

/** The query of a list of namespaces. */
export const NamespacesParams = Schema.Struct({
  prefix: optional(Schema.String.annotations({ description: "Only namespaces with this literal prefix." })),
  tenant: optional(
    Schema.String.annotations({
      jsonSchema: { type: "string", default: "", description: "Only namespaces of this tenant. Empty for all tenants." }
    })
  ),
  withoutTenant: Flag("With `1`, only namespaces that belong to no tenant. It excludes `tenant`."),
  limit: pageLimit,
  cursor: pageCursor("`prefix`, `tenant` and `withoutTenant`")
})

/** The query of a list of tenants. */
export const TenantsParams = Schema.Struct({
  prefix: optional(Schema.String.annotations({ description: "Only tenants whose ids have this literal prefix." })),
  limit: pageLimit,
  cursor: pageCursor("`prefix`")
})

/** Which entries of a namespace to delete. */
export const RemoveParams = Schema.Struct({
  prefix: Schema.String.annotations({
    description: "Only keys with this literal prefix. Empty for all keys."
  }),
  limit: optional(
    QueryInt({
      minimum: 1,
      maximum: maxPage,
      default: maxPage,
      description: "The maximum number of entries to delete."
    })
  ),
  actor: Actor
})

/** The entries of a prefix have no common version. */
export const RemoveHeaders = Schema.Struct({
  "if-match": Misplaced("a delete of a prefix accepts no precondition; use a batch"),
  "if-none-match": Misplaced("a delete of a prefix accepts no precondition; use a batch"),
  ...idempotency
})

/** The actor of a delete. */
export const DeleteParams = Schema.Struct({ actor: Actor })

/** The path of a namespace. */
export const NamespacePath = Schema.Struct({ namespace: Namespace })

/** The path of an entry. */
export const EntryPath = Schema.Struct({ namespace: Namespace, key: Key }).annotations(
  withFastDecoder(fastPath("namespace", "key"))
)
