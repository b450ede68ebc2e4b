/** Tests that begin with the same set-up. */
import type { it } from "@effect/vitest"
import { Effect, type Scope, type Utils } from "effect"

/** The steps of a test, which has what its set-up has made. */
export type Body<Given> = (
  given: Given
) => Generator<Utils.YieldWrap<Effect.Effect<unknown, unknown, Scope.Scope>>, void>

/** Defines a test, with options of its set-up. */
export interface Define<Options, Given> {
  (name: string, body: Body<Given>): void
  (name: string, options: Options, body: Body<Given>): void
}

/** Defines tests that are given what a set-up makes. */
export const given =
  <Options, Given, E>(
    tester: typeof it.scopedLive,
    setUp: (options?: Options) => Effect.Effect<Given, E, Scope.Scope>
  ): Define<Options, Given> =>
  (name: string, first: Options | Body<Given>, second?: Body<Given>) => {
    const [options, body] = second === undefined ? [undefined, first as Body<Given>] : [first as Options, second]
    tester(name, () =>
      Effect.gen(function* () {
        yield* body(yield* setUp(options))
      })
    )
  }
