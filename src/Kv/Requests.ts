/**
 * Schemas of requests for entries and for changes: paths, queries, headers and bodies, and the kinds of fields that they
 * are made of.
 */
import { type ParseResult, Schema } from "effect"
import { decodesAsGiven, flag } from "../Http/Contract.ts"

/** The maximum number of entries in a page of a list, and of changes in a page of the log. */
export const maxPage = 1000

export const epochHeader = "kv-epoch"

/** The response header of a page of changes that may not reach the end of the log. */
export const moreHeader = "kv-more"

/** The response header with the last trimmed `seq`, if a reader has asked for older changes. */
export const trimmedHeader = "kv-trimmed-seq"

/** The actor of requests that name none. */
export const defaultActor = "api"

const optional = <S extends Schema.Schema.All>(schema: S) => Schema.optionalWith(schema, { exact: true })

/** Digits as a number. A value beyond the safe integers becomes the greatest of them. */
const asInteger = (digits: string): number => Math.min(Number(digits), Number.MAX_SAFE_INTEGER)

/** An optional text in a query, a header or a body. */
const text = (description: string) => optional(Schema.String.annotations({ description }))

/** The tenant that a query asks for. */
const tenant = (description: string) =>
  optional(Schema.String.annotations({ jsonSchema: { type: "string", default: "", description } }))

/** An optional whole number in a query, in decimal digits. */
export const wholeText = (options: {
  readonly minimum: number
  readonly maximum?: number
  /** The value if the parameter is absent. */
  readonly default?: number
  readonly description: string
}) => {
  const { minimum, maximum = Number.MAX_SAFE_INTEGER } = options
  const allowed =
    maximum === Number.MAX_SAFE_INTEGER
      ? `a whole number not below ${minimum}`
      : `a whole number from ${minimum} to ${maximum}`
  return optional(
    Schema.transform(
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
  )
}

/** An optional whole number in a body. */
const whole = (limits: { readonly minimum: number; readonly maximum: number }, description: string) => {
  const { maximum, minimum } = limits
  return optional(
    Schema.Number.pipe(
      Schema.filter(number => Number.isInteger(number) && number >= minimum && number <= maximum, {
        jsonSchema: { type: "integer", minimum, maximum, description }
      })
    ).annotations({
      description,
      message: ({ actual }) => `must be a whole number from ${minimum} to ${maximum}, not ${JSON.stringify(actual)}`
    })
  )
}

/**
 * A precondition that belongs to another kind of request. It is refused, because ignoring it could overwrite an entry
 * that it protects.
 */
const misplaced = (advice: string) =>
  optional(
    Schema.Never.annotations({
      description: `Refused: ${advice}.`,
      message: () => `is not accepted here; ${advice}`,
      jsonSchema: { not: {}, description: `Refused: ${advice}.` }
    })
  )

/**
 * Unknown members of a body are refused, at every level: ignoring a misspelled `ttlMs` or `ifVersion` would keep an
 * entry forever, or overwrite one.
 */
const strict = { parseOptions: { onExcessProperty: "error" } } as const

/** The name of the unknown member that a body is refused for, if any. */
const unknownMember = (issue: ParseResult.ParseIssue): PropertyKey | undefined => {
  if (issue._tag !== "Composite" || !("_tag" in issue.issues) || issue.issues._tag !== "Pointer") return undefined
  const { issue: inner, path } = issue.issues
  return inner._tag === "Unexpected" && !Array.isArray(path) ? (path as PropertyKey) : undefined
}

/** Like {@link strict}. For members of other requests, the message says what to use instead. */
const strictBut = (advice: Readonly<Record<string, string>>) => ({
  ...strict,
  message: (issue: ParseResult.ParseIssue) => {
    const name = unknownMember(issue)
    return typeof name === "string" && Object.hasOwn(advice, name)
      ? { message: `${name}: is not accepted here; ${advice[name]}`, override: true }
      : { message: "", override: false }
  }
})

/** Printable ASCII characters. The server has removed white space at the ends. */
const idempotencyKey = /^[\x20-\x7e]{1,256}$/

/** The header that identifies a write, so that its repetition gets the same answer. */
const idempotency = {
  "idempotency-key": optional(
    Schema.String.pipe(
      Schema.filter(text => idempotencyKey.test(text), {
        message: ({ actual }) => ({
          message: `must be 1 to 256 printable characters of ASCII, not ${JSON.stringify(String(actual).slice(0, 64))}`,
          override: true
        })
      })
    ).annotations({
      jsonSchema: {
        type: "string",
        minLength: 1,
        maxLength: 256,
        description:
          "Any text that names this write. A repeated request with the same text gets the first answer, and is not applied again. The text is stored for 24 hours, or less if its tenant has written very many."
      }
    })
  )
}

/** A name in a path. The router decodes it once; the typed client encodes it here. */
const Segment = (description: string, example: string) =>
  Schema.transform(Schema.String, Schema.String, {
    strict: true,
    decode: segment => segment,
    encode: segment => encodeURIComponent(segment)
  }).annotations({
    ...decodesAsGiven,
    description,
    jsonSchema: { type: "string", minLength: 1, description, examples: [example] }
  })

const Namespace = Segment("Grouping of keys, percent-encoded as one path segment.", "tenant:acme/settings")
const Key = Segment("Name within the namespace, percent-encoded as one path segment.", "theme")

/** The latest time of a JavaScript date, in epoch milliseconds. */
export const endOfTime = 8_640_000_000_000_000

/** When an entry expires: at most one of the two. */
const Expiry = {
  ttlMs: whole({ minimum: 1, maximum: endOfTime }, "The entry expires this many milliseconds from now."),
  expiresAt: whole({ minimum: 1, maximum: endOfTime }, "The entry expires at this time, in epoch milliseconds.")
}

// Not a `default` of the schema: some generators would make the member required.
const Actor = text(`Who writes; \`${defaultActor}\` if left out.`)

const AnyJson = Schema.Unknown.annotations({ description: "Any JSON value." })

/** The body of a PUT. */
export const SetPayload = Schema.Struct({ value: AnyJson, actor: Actor, ...Expiry }).annotations({
  identifier: "SetRequest",
  ...strictBut({ ifVersion: "use the header If-Match, or If-None-Match: * for an entry that must be absent" })
})

const IfVersion = whole(
  { minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
  "The entry must be at this version. 0 means that it must be absent."
)

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

export const BatchPayload = Schema.Struct({ operations: Schema.Array(BatchOperation), actor: Actor }).annotations({
  identifier: "BatchRequest",
  ...strictBut({ ifVersion: "use ifVersion of an operation" })
})

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
  "if-match": misplaced("use ifVersion of an operation"),
  "if-none-match": misplaced("use ifVersion of an operation, 0 for an entry that must be absent"),
  ...idempotency
})

const conditions = {
  "if-match": text('A version in quotes, as in `"3"`.'),
  "if-none-match": text('`*`, or a version in quotes, as in `"3"`.')
}

/** RFC 9110 preconditions. The handler checks their values. */
export const Preconditions = Schema.Struct(conditions)

/** The headers of a PUT and of a DELETE. */
export const WriteHeaders = Schema.Struct({ ...conditions, ...idempotency })

export const ListParams = Schema.Struct({
  prefix: text("Only keys with this literal prefix."),
  start: text("Only this key and those after it."),
  end: text("Only keys before this one."),
  reverse: flag("With `1`, from the last key to the first."),
  keysOnly: flag("With `1`, entries come without `value`."),
  count: flag(
    "With `1`, `Kv-Count` is how many entries `prefix`, `start` and `end` select, whatever `limit` and `cursor` are."
  ),
  limit: wholeText({
    minimum: 1,
    maximum: maxPage,
    description: "The size of a page. Without it, all entries are in one response."
  }),
  cursor: text(
    "The start of the page, from the `Link` header of the previous one. It requires the same `prefix`, `start`, `end` and `reverse`."
  )
})

/** The size of a page of names: at most 1,000. */
const pageLimit = wholeText({ minimum: 1, maximum: maxPage, default: maxPage, description: "The size of a page." })

const pageCursor = (goesWith: string) =>
  text(`The start of the page, from the \`Link\` header of the previous one. It requires the same ${goesWith}.`)

/** The query of a list of namespaces. */
export const NamespacesParams = Schema.Struct({
  prefix: text("Only namespaces with this literal prefix."),
  tenant: tenant("Only namespaces of this tenant. Empty for all tenants."),
  withoutTenant: flag("With `1`, only namespaces that belong to no tenant. It excludes `tenant`."),
  limit: pageLimit,
  cursor: pageCursor("`prefix`, `tenant` and `withoutTenant`")
})

/** The query of a list of tenants. */
export const TenantsParams = Schema.Struct({
  prefix: text("Only tenants whose ids have this literal prefix."),
  limit: pageLimit,
  cursor: pageCursor("`prefix`")
})

/** Which entries of a namespace to delete. */
export const RemoveParams = Schema.Struct({
  prefix: Schema.String.annotations({ description: "Only keys with this literal prefix. Empty for all keys." }),
  limit: wholeText({
    minimum: 1,
    maximum: maxPage,
    default: maxPage,
    description: "The maximum number of entries to delete."
  }),
  actor: Actor
})

/** The entries of a prefix have no common version. */
export const RemoveHeaders = Schema.Struct({
  "if-match": misplaced("a delete of a prefix accepts no precondition; use a batch"),
  "if-none-match": misplaced("a delete of a prefix accepts no precondition; use a batch"),
  ...idempotency
})

export const DeleteParams = Schema.Struct({ actor: Actor })

export const NamespacePath = Schema.Struct({ namespace: Namespace })

export const EntryPath = Schema.Struct({ namespace: Namespace, key: Key })

/** The default number of changes in a page of the log. */
export const defaultPage = 100

/** The longest that a poll for changes waits, in seconds. */
const maxWaitSeconds = 60

/** The part of the log that a request selects. */
const feed = {
  tenant: tenant("Only changes of this tenant. Empty for all tenants."),
  namespace: text("Only changes of this namespace."),
  prefix: text("Only changes of keys with this literal prefix. It requires `namespace`."),
  after: wholeText({ minimum: 0, default: 0, description: "Only changes with a greater `seq`." }),
  limit: wholeText({
    minimum: 1,
    default: defaultPage,
    description: `The maximum number of changes in one response. Values above ${maxPage} count as ${maxPage}.`
  }),
  epoch: text(
    "The log that `after` is a position of, from `Kv-Epoch`. If the service has another log, it says so instead of sending changes."
  )
}

/** The query of a poll. */
export const ChangesParams = Schema.Struct({
  ...feed,
  initial: misplaced("it is for /changes/stream and /changes/ws"),
  wait: wholeText({
    minimum: 0,
    maximum: maxWaitSeconds,
    default: 0,
    description: "Seconds to wait for a change if there is none yet."
  })
})

/** The part of the log to follow. */
export const FollowParams = Schema.Struct({
  ...feed,
  initial: flag(
    "With `1`, the entries of `namespace` are sent first, and then the changes after them, whatever `after` is."
  )
})

/** The position at which a stream was interrupted. */
export const ResumeHeaders = Schema.Struct({
  "last-event-id": text("The `id` of the last event. It takes precedence over `after` and `epoch`.")
})
