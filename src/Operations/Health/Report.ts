/** Finds out whether the service and what it depends on work. */
import { Array as Arr, Clock, Context, Effect, Layer, Option } from "effect"
import { version } from "../../base/Version.ts"
import { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import * as HealthProbe from "../../Upstream/HealthProbe.ts"
import { Inference } from "../../Upstream/Inference.ts"
import { codeIn } from "../../Upstream/Resilience/UpstreamFailure.ts"
import { critical, type Dependency, type NodeReport, overall, type Report } from "./Api.ts"

/** The health of the gateway and of everything that it depends on. */
export class Health extends Context.Tag("causeway/Health")<
  Health,
  {
    /**
     * Probes every dependency concurrently, within little more than two seconds. Callers within the same second share
     * one probe, so that clients cannot multiply the load on upstream services.
     */
    readonly report: Effect.Effect<Report>
  }
>() {}

/** The number of active subscriptions to sessions, which the gateway provides; 0 without a gateway. */
export class Subscriptions extends Context.Reference<Subscriptions>()("causeway/Health/Subscriptions", {
  defaultValue: (): { readonly count: Effect.Effect<number> } => ({ count: Effect.succeed(0) })
}) {}

/**
 * This node among those that share its database, which the gateway provides; none without a gateway, or if it is
 * alone.
 */
export class Node extends Context.Reference<Node>()("causeway/Health/Node", {
  defaultValue: (): { readonly status: Effect.Effect<Option.Option<NodeReport>> } => ({ status: Effect.succeedNone })
}) {}

const timeout = /^No answer within [\w ]+$/

/** The public detail of a failed probe. The error itself may name hosts and ports of the internal network. */
export const detailOf = ({ statusCode, error = "" }: Pick<HealthProbe.Health, "statusCode" | "error">): string => {
  if (statusCode !== undefined) return `GET /health answered ${statusCode}`
  if (timeout.test(error)) return error
  const code = codeIn(error)
  return code === undefined ? "No connection" : `No connection (${code})`
}

/** An upstream service in the report; nothing if it is not configured. */
export const dependency = (name: string, probed: Option.Option<HealthProbe.Health>): Option.Option<Dependency> =>
  Option.map(probed, health => ({
    name,
    status: health.status,
    latencyMs: health.latencyMs,
    ...(health.status === "ok" ? {} : { error: detailOf(health) })
  }))

/** Checks one dependency; nothing if it is not configured. */
type Check = Effect.Effect<Option.Option<Dependency>>

const make = (checks: ReadonlyArray<Check>) =>
  Effect.gen(function* () {
    const subscriptions = yield* Subscriptions
    const node = yield* Node
    const startedAt = yield* Clock.currentTimeNanos
    return Health.of({
      report: Effect.gen(function* () {
        const dependencies = Arr.getSomes(yield* Effect.all(checks, { concurrency: "unbounded" }))
        const { rss, heapUsed, heapTotal } = process.memoryUsage()
        return {
          status: overall(dependencies),
          uptime: Math.round(Number((yield* Clock.currentTimeNanos) - startedAt) / 1e6),
          connections: yield* subscriptions.count,
          memory: { rss, heapUsed, heapTotal },
          dependencies,
          ...Option.match(yield* node.status, { onNone: () => ({}), onSome: node => ({ node }) }),
          version
        }
      })
    })
  })

/** A dependency other than the upstream services, such as the replication of the store. */
export type DependencyCheck<R = never> = Effect.Effect<Dependency, never, R>

const shared = <R>(checks: ReadonlyArray<DependencyCheck<R>>) =>
  Effect.flatMap(Effect.context<R>(), context =>
    Effect.forEach(checks, check => Effect.map(HealthProbe.shared(Effect.provide(check, context)), Effect.asSome))
  )

/** The health of a service with these dependencies, and no upstream services. */
export const layerChecks = <R = never>(checks: ReadonlyArray<DependencyCheck<R>>): Layer.Layer<Health, never, R> =>
  Layer.scoped(Health, Effect.flatMap(shared(checks), make))

/** The health of a service without dependencies, such as a host that mounts only the store. */
export const layerAlone: Layer.Layer<Health> = layerChecks([])

/** The health of the gateway: its configured upstream services, and other dependencies. */
export const layer = <R = never>(
  checks: ReadonlyArray<DependencyCheck<R>> = []
): Layer.Layer<Health, never, AgentPlatform | Inference | R> =>
  Layer.scoped(
    Health,
    Effect.gen(function* () {
      const platform = yield* AgentPlatform
      const inference = yield* Inference
      return yield* make([
        Effect.map(platform.probe, probed => dependency(critical, probed)),
        Effect.map(inference.probe, probed => dependency("inference", probed)),
        ...(yield* shared(checks))
      ])
    })
  )
