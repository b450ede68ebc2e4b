/** Records the figures of this node while it runs. */
import { Clock, Context, Effect, Layer, Option } from "effect"
import { Metrics } from "../../base/Observability/Metrics.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import type { KindOf } from "../../Http/Router.ts"
import { between, currentOf, type Reading, readingOf } from "./Figures.ts"
import { intervalMs, type Recorded } from "./Model.ts"
import { Ring } from "./Ring.ts"

/** What is read of a recording. */
export interface Wanted {
  /** Only the samples of the last so many milliseconds, by the clock of the node. */
  readonly lastMs: number
  /** The maximum number of samples; see `Ring.after`. */
  readonly most: number
}

/** The recording of this node; none if the application does not serve it. */
export class Recorder extends Context.Reference<Recorder>()("causeway/Recorder", {
  defaultValue: (): { readonly read: (wanted: Wanted) => Effect.Effect<Option.Option<Recorded>> } => ({
    read: () => Effect.succeedNone
  })
}) {}

const make = Effect.fn("Recorder.make")(function* (kindOf: KindOf) {
  const metrics = yield* Metrics
  const ring = new Ring()
  const since = yield* Clock.currentTimeMillis
  const read = Effect.map(Effect.all([metrics.samples, Monotonic.millis]), ([samples, at]) => readingOf(at, samples))
  let latest: Reading | undefined
  const sample = Effect.gen(function* () {
    const reading = yield* read
    if (latest !== undefined) ring.add(Math.trunc(yield* Clock.currentTimeMillis), between(latest, reading, kindOf))
    latest = reading
  })
  yield* Supervision.forkScoped("activity", Effect.forever(Effect.zipRight(sample, Effect.sleep(intervalMs))))
  return {
    read: ({ lastMs, most }: Wanted) =>
      Effect.flatMap(Clock.currentTimeMillis, now =>
        Effect.map(latest === undefined ? read : Effect.succeed(latest), reading =>
          Option.some({ since: Math.trunc(since), ...currentOf(reading), series: ring.after(now - lastMs, most) })
        )
      )
  }
})

/** Records a sample every five seconds, until the scope closes. The kinds are those of the routes that are measured. */
export const layer = (kindOf: KindOf): Layer.Layer<never, never, Metrics> => Layer.scoped(Recorder, make(kindOf))
