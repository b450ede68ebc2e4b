/** Tests that use a database: by the true time, each with a scope of its own, and without a log. */
import { it } from "@effect/vitest"
import { Effect, Logger, type Scope } from "effect"
import type { YieldWrap } from "effect/Utils"

/** Without a log. */
export const quiet = Logger.remove(Logger.defaultLogger)

type Body = () => Generator<YieldWrap<Effect.Effect<unknown, unknown, Scope.Scope>>, unknown, never>

/** Registers a test. */
export const live = (name: string, body: Body): void =>
  it.scopedLive(name, () => Effect.provide(Effect.gen(body), quiet))
