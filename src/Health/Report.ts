/**
 * The health of the gateway and of its dependencies, and how the overall status follows from theirs.
 */
import { Schema } from "effect"

/** A health status. */
export const Status = Schema.Literal("ok", "degraded", "unhealthy").annotations({ identifier: "HealthStatus" })

/** A health status. */
export type Status = typeof Status.Type

/** The dependency that makes the gateway unhealthy. */
export const critical = "agent_platform"

/** The health of a dependency. */
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

/** The health of a dependency. */
export type Dependency = typeof Dependency.Type

const bytes = (description: string) => Schema.Number.annotations({ description })

/** The health of the gateway. It is public, and holds no address, no credential and no tenant. */
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

/** The health of the gateway. */
export type Report = typeof Report.Type

/** `unhealthy` if the critical dependency is, `degraded` if any dependency is not `ok`. */
export const overall = (dependencies: ReadonlyArray<Dependency>): Status => {
  if (dependencies.some(({ name, status }) => name === critical && status === "unhealthy")) return "unhealthy"
  return dependencies.every(({ status }) => status === "ok") ? "ok" : "degraded"
}
