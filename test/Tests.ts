/** Tests whose body is the generator of `Effect.gen`. */
import { it, type Vitest } from "@effect/vitest"
import { Effect } from "effect"
import type { Steps } from "./suites/Steps.ts"

const byGenerator =
  <R>(register: Vitest.Test<R>) =>
  (title: string, body: () => Steps<R>): void =>
    register(title, () => Effect.gen(body))

/** The registration of tests with the services of a layer. */
export const testsOf = <A, B>(it: { readonly effect: Vitest.Test<A>; readonly scoped: Vitest.Test<B> }) => ({
  effect: byGenerator(it.effect),
  scoped: byGenerator(it.scoped)
})

export const test = { ...testsOf(it), live: byGenerator(it.live), scopedLive: byGenerator(it.scopedLive) }
