/**
 * What requests to the key-value group hold: paths, queries, headers and bodies.
 */
import { type ParseResult, Schema } from "effect"
import { withFastDecoder } from "../Http/Contract.ts"
import { fastBatchPayload, fastPath, fastSetPayload, headersWithout } from "./FastDecoders.ts"
import { idempotency } from "./IdempotencyHeader.ts"

/** The most entries in a page of a list, and the most changes in a page of the log. */
export const maxPage = 1000

/** The default number of changes in a page of the log. */
export const defaultPage = 100

/** The longest that a poll for changes waits, in seconds. */
export const maxWaitSeconds = 60

/** The header that tells of which log a list or a page of changes is. */
export const epochHeader = "kv-epoch"

/** The actor of requests that name none. */
export const defaultActor = "api"

const optional = <S extends Schema.Schema.All>(schema: S) => Schema.optionalWith(schema, { exact: true })

/** A name in a path: decoded once by the router, encoded here for the typed client. */
const Segment = (description: string, example: string) =>
  Schema.transform(Schema.String, Schema.String, {
    strict: true,
    decode: segment => segment,
    encode: segment => encodeURIComponent(segment)
  }).annotations({ description, jsonSchema: { type: "string", minLength: 1, description, examples: [example] } })

const Namespace = Segment("Grouping of keys, percent-encoded as one path segment.", "tenant:acme/settings")
const Key = Segment("Name within the namespace, percent-encoded as one path segment.", "theme")

/** Digits as a number. A value beyond the safe integers is taken for the greatest of them. */
const asInteger = (digits: string): number => Math.min(Number(digits), Number.MAX_SAFE_INTEGER)

/** A whole number in a query, written in digits. */
const QueryInt = (options: {
  readonly minimum: number
  readonly maximum?: number
  /** The value without the parameter. */
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
      Schema.filter(text => /^\d+$/.test(text) && Number(text) >= minimum && asInteger(text) <= maximum, {
        message: ({ actual }) => `must be ${allowed}, not ${JSON.stringify(actual)}`
      })
    ),
    Schema.Number,
    { strict: true, decode: asInteger, encode: String }
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
export const endOfTime = 8_640_000_000_000_000

/** How long an entry lives: at most one of the two. */
const Expiry = {
  ttlMs: optional(
    Whole({ minimum: 1, maximum: endOfTime, description: "The entry expires this many milliseconds from now." })
  ),
  expiresAt: optional(
    Whole({ minimum: 1, maximum: endOfTime, description: "The entry expires at this time, in epoch milliseconds." })
  )
}

// Without a `default` in the schema, by which some generators make it a member that clients must send.
const Actor = optional(Schema.String.annotations({ description: `Who writes; \`${defaultActor}\` if left out.` }))

const AnyJson = Schema.Unknown.annotations({ description: "Any JSON value." })

/** A precondition of another kind of request. It is refused, since to ignore it could overwrite an entry that it protects. */
const Misplaced = (advice: string) =>
  optional(
    Schema.Never.annotations({
      description: `Refused: ${advice}.`,
      message: () => `is not taken here; ${advice}`,
      jsonSchema: { not: {}, description: `Refused: ${advice}.` }
    })
  )

/**
 * Unknown members of a body are refused, at every level: to ignore a misspelled `ttlMs` or `ifVersion` would keep an entry
 * forever, or overwrite one.
 */
const strict = { parseOptions: { onExcessProperty: "error" } } as const

/** The name of an unknown member, if it is what a body is refused for. */
const unknownMember = (issue: ParseResult.ParseIssue): PropertyKey | undefined => {
  if (issue._tag !== "Composite" || !("_tag" in issue.issues) || issue.issues._tag !== "Pointer") return undefined
  const { issue: inner, path } = issue.issues
  return inner._tag === "Unexpected" && !Array.isArray(path) ? (path as PropertyKey) : undefined
}

/** As {@link strict}. Says what to use in the place of members that other requests have. */
const strictBut = (advice: Readonly<Record<string, string>>) => ({
  ...strict,
  message: (issue: ParseResult.ParseIssue) => {
    const name = unknownMember(issue)
    return typeof name === "string" && Object.hasOwn(advice, name)
      ? { message: `${name}: is not taken here; ${advice[name]}`, override: true }
      : { message: "", override: false }
  }
})

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

/** The headers of a batch, whose operations have preconditions of their own. */
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

/** A parameter that is switched on by `1`. */
const Flag = (description: string) =>
  optional(
    Schema.Literal("0", "1").annotations({
      description,
      message: ({ actual }) => ({ message: `must be 0 or 1, not ${JSON.stringify(actual)}`, override: true })
    })
  )

export const ListParams = Schema.Struct({
  prefix: optional(Schema.String.annotations({ description: "Only keys with this literal prefix." })),
  start: optional(Schema.String.annotations({ description: "Only this key and those after it." })),
  end: optional(Schema.String.annotations({ description: "Only keys before this one." })),
  reverse: Flag("With `1`, from the last key to the first."),
  keysOnly: Flag("With `1`, entries come without `value`."),
  count: Flag(
    "With `1`, `Kv-Count` tells how many entries `prefix`, `start` and `end` select, whatever `limit` and `cursor` are."
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
        "The start of the page, from the `Link` header of the previous one. It goes with the same `prefix`, `start`, `end` and `reverse`."
    })
  )
})

export const NamespacesParams = Schema.Struct({
  prefix: optional(Schema.String.annotations({ description: "Only namespaces with this literal prefix." })),
  limit: optional(QueryInt({ minimum: 1, maximum: maxPage, default: maxPage, description: "The size of a page." })),
  cursor: optional(
    Schema.String.annotations({
      description: "The start of the page, from the `Link` header of the previous one. It goes with the same `prefix`."
    })
  )
})

const after = optional(QueryInt({ minimum: 0, default: 0, description: "Only changes with a greater `seq`." }))

const tenant = optional(
  Schema.String.annotations({
    jsonSchema: { type: "string", default: "", description: "Only changes of this tenant. Empty for all tenants." }
  })
)

const part = {
  namespace: optional(Schema.String.annotations({ description: "Only changes of this namespace." })),
  prefix: optional(
    Schema.String.annotations({ description: "Only changes of keys with this literal prefix. It takes `namespace`." })
  )
}

const limit = optional(
  QueryInt({
    minimum: 1,
    default: defaultPage,
    description: `The maximum number of changes in one response. Values above ${maxPage} count as ${maxPage}.`
  })
)

const epoch = optional(
  Schema.String.annotations({
    description:
      "The log that `after` is a position of, from `Kv-Epoch`. If the service has another log, it says so instead of sending changes."
  })
)

export const ChangesParams = Schema.Struct({
  tenant,
  ...part,
  after,
  limit,
  epoch,
  initial: Misplaced("it is for /changes/stream and /changes/ws"),
  wait: optional(
    QueryInt({
      minimum: 0,
      maximum: maxWaitSeconds,
      default: 0,
      description: "Seconds to wait for a change if there is none yet."
    })
  )
})

/** The part of the log to follow. */
export const FollowParams = Schema.Struct({
  tenant,
  ...part,
  after,
  limit,
  epoch,
  initial: Flag(
    "With `1`, the entries of `namespace` are sent first, and then the changes after them, whatever `after` is."
  )
})

/** Which entries of a namespace to delete. */
export const RemoveParams = Schema.Struct({
  prefix: Schema.String.annotations({
    description: "Only keys with this literal prefix. Empty for all keys."
  }),
  limit: optional(
    QueryInt({ minimum: 1, maximum: maxPage, default: maxPage, description: "The most entries that are deleted." })
  ),
  actor: Actor
})

/** Entries of a prefix have no version together. */
export const RemoveHeaders = Schema.Struct({
  "if-match": Misplaced("a delete of a prefix takes no precondition; use a batch"),
  "if-none-match": Misplaced("a delete of a prefix takes no precondition; use a batch"),
  ...idempotency
})

/** Who deletes. */
export const DeleteParams = Schema.Struct({ actor: Actor })

/** The position at which a stream was lost. */
export const ResumeHeaders = Schema.Struct({
  "last-event-id": optional(
    Schema.String.annotations({
      description: "The `id` of the last event. It takes precedence over `after` and `epoch`."
    })
  )
})

/** The path of a namespace. */
export const NamespacePath = Schema.Struct({ namespace: Namespace })

/** The path of an entry. */
export const EntryPath = Schema.Struct({ namespace: Namespace, key: Key }).annotations(
  withFastDecoder(fastPath("namespace", "key"))
)
