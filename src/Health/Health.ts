import { Array as Arr, Clock, Context, Effect, Layer, Option } from "effect"
import { AgentPlatform } from "../Upstream/AgentPlatform.ts"
import * as HealthProbe from "../Upstream/HealthProbe.ts"
import { Inference } from "../Upstream/Inference.ts"
import { version } from "../Version.ts"
import { critical, type Dependency, overall, type Report } from "./Report.ts"
import { Subscriptions } from "./Subscriptions.ts"
import { dependency } from "./Upstreams.ts"

/** How the gateway is, and all that it depends on. */
export class Health extends Context.Tag("causeway/Health")<
  Health,
  {
    /**
     * Looks at every dependency, all at once, within little more than two seconds. Callers within the same second
     * share what was found, so that nobody can make the gateway press its upstreams.
     */
    readonly report: Effect.Effect<Report>
  }
>() {}

/** A look at one dependency; nothing where there is none. */
type Check = Effect.Effect<Option.Option<Dependency>>

const make = (checks: ReadonlyArray<Check>) =>
  Effect.gen(function* () {
    const subscriptions = yield* Subscriptions
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
          version
        }
      })
    })
  })

/** The health of a service that depends on nothing, as where a host mounts the store alone. */
export const layerAlone: Layer.Layer<Health> = Layer.effect(Health, make([]))

/**
 * The health of the gateway: its upstream services, where they are configured, and the replication of the store, where
 * the storage backend can check it.
 */
export const layer = <R = never>(options: {
  readonly replication: Option.Option<Effect.Effect<Dependency, never, R>>
}): Layer.Layer<Health, never, AgentPlatform | Inference | R> =>
  Layer.scoped(
    Health,
    Effect.gen(function* () {
      const platform = yield* AgentPlatform
      const inference = yield* Inference
      const context = yield* Effect.context<R>()
      const replication = yield* Effect.forEach(Option.toArray(options.replication), check =>
        HealthProbe.shared(Effect.provide(check, context))
      )
      return yield* make([
        Effect.map(platform.probe, probed => dependency(critical, probed)),
        Effect.map(inference.probe, probed => dependency("inference", probed)),
        ...replication.map(Effect.asSome)
      ])
    })
  )
