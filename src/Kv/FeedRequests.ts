/**
 * Schemas of requests to the change feed: queries and headers.
 */
import { Schema } from "effect"
import { Flag } from "../Http/Flag.ts"
import { Misplaced, optional, QueryInt } from "./Fields.ts"
import { maxPage } from "./Requests.ts"

/** The default number of changes in a page of the log. */
export const defaultPage = 100

/** The longest that a poll for changes waits, in seconds. */
export const maxWaitSeconds = 60

const after = optional(QueryInt({ minimum: 0, default: 0, description: "Only changes with a greater `seq`." }))

const tenant = optional(
  Schema.String.annotations({
    jsonSchema: { type: "string", default: "", description: "Only changes of this tenant. Empty for all tenants." }
  })
)

const part = {
  namespace: optional(Schema.String.annotations({ description: "Only changes of this namespace." })),
  prefix: optional(
    Schema.String.annotations({
      description: "Only changes of keys with this literal prefix. It requires `namespace`."
    })
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

/** The query of a poll. */
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

/** The position at which a stream was interrupted. */
export const ResumeHeaders = Schema.Struct({
  "last-event-id": optional(
    Schema.String.annotations({
      description: "The `id` of the last event. It takes precedence over `after` and `epoch`."
    })
  )
})
