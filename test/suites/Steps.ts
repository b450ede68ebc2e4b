import type { Effect } from "effect"
import type { YieldWrap } from "effect/Utils"

/** The body of a test as the generator of `Effect.gen`, with the services that it needs. */
export type Steps<R> = Generator<YieldWrap<Effect.Effect<unknown, unknown, R>>, void, never>
