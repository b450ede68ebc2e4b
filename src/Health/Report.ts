/**
 * How the gateway and what it depends on are, and how the one follows from the other.
 */
import { Schema } from "effect"

/** How well something works. */
export const Status = Schema.Literal("ok", "degraded", "unhealthy").annotations({ identifier: "HealthStatus" })

/** How well something works. */
export type Status = typeof Status.Type

/** The one dependency without which the gateway is of no use. */
export const critical = "agent_platform"

/** How a dependency is. */
export const Dependency = Schema.Struct({
  name: Schema.String.annotations({ description: "agent_platform, inference or replication." }),
  status: Status,
  latencyMs: Schema.optionalWith(
    Schema.Number.annotations({ description: "Milliseconds that the probe took, where one was sent." }),
    { exact: true }
  ),
  error: Schema.optionalWith(Schema.String.annotations({ description: "What is wrong, where something is." }), {
    exact: true
  })
}).annotations({ identifier: "DependencyHealth" })

/** How a dependency is. */
export type Dependency = typeof Dependency.Type

const bytes = (description: string) => Schema.Number.annotations({ description })

/** How the gateway is. Everybody may read it: it holds no address, no credential and no tenant's name. */
export const Report = Schema.Struct({
  status: Status,
  uptime: Schema.Number.annotations({ description: "Milliseconds since the gateway started." }),
  connections: Schema.Number.annotations({ description: "Active subscriptions to sessions." }),
  memory: Schema.Struct({
    rss: bytes("Resident memory in bytes."),
    heapUsed: bytes("JavaScript heap in use in bytes."),
    heapTotal: bytes("JavaScript heap allocated in bytes.")
  }),
  dependencies: Schema.Array(Dependency),
  version: Schema.String.annotations({ description: "The version of the gateway." })
}).annotations({ identifier: "HealthReport" })

/** How the gateway is. */
export type Report = typeof Report.Type

/** `unhealthy` with the critical dependency, `degraded` as soon as anything is not `ok`. */
export const overall = (dependencies: ReadonlyArray<Dependency>): Status => {
  if (dependencies.some(({ name, status }) => name === critical && status === "unhealthy")) return "unhealthy"
  return dependencies.every(({ status }) => status === "ok") ? "ok" : "degraded"
}
