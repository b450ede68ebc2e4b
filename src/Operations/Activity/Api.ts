/** The endpoint of the activity of the service, and its answer. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { BadRequest, InternalServerError } from "../../Http/ApiError.ts"
import { ReadAccess } from "../../Http/Auth/Api.ts"
import { Part, RouteKind } from "../../Http/Contract.ts"
import { operation } from "../../Http/OpenApi/Describe.ts"
import { wholeText } from "../../Kv/Requests.ts"
import { type ByFigure, byFigure, intervalMs, keptMs } from "./Model.ts"

const Size = Schema.NullOr(Schema.Number)

const described: ByFigure<string> = {
  succeeded: "Requests per second with a status below 400, without monitoring and pages.",
  refused: "Requests per second with a status of 4xx.",
  failed: "Requests per second with a status of 5xx, or whose client left.",
  p50: "Median duration of requests in milliseconds, without long polls and streams.",
  p95: "The 95th percentile.",
  p99: "The 99th percentile.",
  reads: "Reads of entries and lists per second.",
  writes: "Writes per second.",
  commits: "Transactions per second.",
  commitP99: "The 99th percentile of the duration of a transaction in milliseconds.",
  followers: "Followers of the change log.",
  lag: "Changes not yet sent to the WebSocket that is furthest behind.",
  connections: "Connections to the HTTP port.",
  eventLoop: "Delay of the event loop in milliseconds.",
  resident: "Resident memory in bytes.",
  heap: "Heap in use in bytes."
}

const Values = Schema.Array(Schema.NullOr(Schema.Number))

const Series = Schema.Struct({
  at: Schema.Array(Schema.Number).annotations({ description: "The times of the samples in epoch milliseconds." }),
  ...byFigure(name => Values.annotations({ description: described[name] }))
}).annotations({ identifier: "ActivitySeries" })

const optional = <A, I>(schema: Schema.Schema<A, I>) => Schema.optionalWith(schema, { exact: true })

const Node = Schema.Struct({
  id: Schema.String.annotations({ description: "The id of this run of the node; empty if it is alone." }),
  isAnswering: Schema.Boolean.annotations({ description: "False if the node has not answered this one." }),
  since: optional(Schema.Number.annotations({ description: "When the recording began, in epoch milliseconds." })),
  databaseBytes: optional(Size),
  diskFreeBytes: optional(Size),
  diskSizeBytes: optional(Size),
  breakers: optional(
    Schema.Array(Schema.Struct({ name: Schema.String, state: Schema.Literal("closed", "half-open", "open") }))
  ),
  series: optional(Series)
}).annotations({ identifier: "NodeActivity" })

const Largest = Schema.Array(Schema.Struct({ tenant: Schema.String, count: Schema.Int }))

const isComplete = Schema.Boolean.annotations({ description: "False if there are more than are counted." })

const Holdings = Schema.Struct({
  entries: Schema.Int,
  namespaces: Schema.Int,
  tenants: Schema.Int,
  isComplete,
  sessions: Schema.NullOr(
    Schema.Struct({
      ...{ total: Schema.Int, running: Schema.Int, waiting: Schema.Int, failed: Schema.Int, isComplete }
    })
  ).annotations({ description: "Null without a gateway. Those that run wait for no person." }),
  largest: Schema.Struct({ entries: Largest, namespaces: Largest, sessions: Largest }).annotations({
    description: "The tenants with the most of each."
  })
}).annotations({ identifier: "Holdings" })

const Answer = Schema.Struct({
  at: Schema.Number.annotations({ description: "The time of the answer in epoch milliseconds." }),
  intervalMs: Schema.Number.annotations({ description: "Milliseconds between two samples." }),
  nodes: Schema.Array(Node).annotations({ description: "The nodes, that which answers first." }),
  unlisted: Schema.Int.annotations({
    description: "The number of nodes of which nothing is known: those without NODE_ADDRESS, and those beyond 64."
  }),
  agents: Schema.Array(
    Schema.Struct({
      agentType: Schema.NullOr(Schema.String).annotations({ description: "Null for all other types." }),
      address: Schema.String
    })
  ).annotations({ description: "Where the agents of the gateway are reached, without credentials." }),
  holdings: Schema.NullOr(Holdings).annotations({
    description: "What the store holds; null if it does not answer within two seconds."
  })
}).annotations({ identifier: "Activity" })

const keptSeconds = keptMs / 1000

const Params = Schema.Struct({
  seconds: wholeText({
    ...{ minimum: 0, maximum: keptSeconds, default: keptSeconds },
    description: "Only the samples of the last so many seconds."
  })
})

const example = {
  at: 1_767_225_600_000,
  intervalMs,
  nodes: [
    {
      ...{ id: "", isAnswering: true, since: 1_767_225_590_000, databaseBytes: 1_048_576 },
      ...{ diskFreeBytes: 53_687_091_200, diskSizeBytes: 107_374_182_400 },
      breakers: [{ name: "agent_platform", state: "closed" }],
      series: { at: [1_767_225_595_000], ...byFigure(() => [1.5]) }
    }
  ],
  unlisted: 0,
  agents: [{ agentType: null, address: "https://agents.example" }],
  holdings: {
    ...{ entries: 120, namespaces: 8, tenants: 2, isComplete: true },
    sessions: { total: 3, running: 1, waiting: 1, failed: 0, isComplete: true },
    largest: {
      entries: [{ tenant: "acme", count: 100 }],
      namespaces: [{ tenant: "acme", count: 6 }],
      sessions: [{ tenant: "acme", count: 3 }]
    }
  }
}

const activity = operation({
  operationId: "getActivity",
  summary: "The last hour of every node, and what the store holds",
  description:
    "Each node samples its figures every five seconds and keeps those of the last hour. With many nodes, samples are thinned out. A node that does not answer within two seconds has only its id. A credential that is limited to a tenant gets no nodes, and the numbers of its own tenant.",
  answers: {
    200: { description: "The activity.", example },
    400: { example: { error: `seconds: must be a whole number from 0 to ${keptSeconds}, not "-1"` } }
  }
})

/** The activity of the service, for operators. */
export const ActivityRoutes = HttpApiGroup.make("activity")
  .add(
    HttpApiEndpoint.get("activity", "/activity")
      .setUrlParams(Params)
      .addSuccess(Answer)
      .addError(BadRequest.Wire)
      .annotate(OpenApi.Transform, activity)
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .annotate(Part, "activity")
  .annotate(RouteKind, "monitoring")
  .annotate(OpenApi.Title, "Activity")
  .annotate(OpenApi.Description, "The activity of the service, for the console and other tools of operators.")

/** The same under `/api/v1`. */
export const ActivityGroup = ActivityRoutes.prefix("/api/v1")
