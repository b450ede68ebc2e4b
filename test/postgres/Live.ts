/** Tests that use a database: by the true time, each with a scope of its own, and without a log. */
import { describe, it } from "@effect/vitest"
import { Effect, Logger, type Scope } from "effect"
import type { YieldWrap } from "effect/Utils"
import { reasonToSkip } from "./Server.ts"

/** Without a log. */
export const quiet = Logger.remove(Logger.defaultLogger)

type Body = () => Generator<YieldWrap<Effect.Effect<unknown, unknown, Scope.Scope>>, unknown, never>

/** Registers a test. */
export const live = (name: string, body: Body): void =>
  it.scopedLive(name, () => Effect.provide(Effect.gen(body), quiet))

/** Tests that are skipped where there is no PostgreSQL. */
export const onPostgres = (name: string, tests: () => void, reason = reasonToSkip): void => {
  describe.skipIf(reason !== undefined)(`${name} ${reason ?? ""}`, tests)
}

/** Does something for each item, all at once. */
export const together = <A, B, E, R>(
  items: ReadonlyArray<A>,
  work: (item: A, index: number) => Effect.Effect<B, E, R>
) => Effect.forEach(items, work, { concurrency: "unbounded" })
