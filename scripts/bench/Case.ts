import { Console, Effect, type Scope } from "effect"
import { BenchFailed } from "./BenchFailed.ts"
import type { Contender } from "./Contender.ts"
import type { Findings } from "./Findings.ts"
import type { Plan } from "./Plan.ts"
import { ask, type Running } from "./Server.ts"

/** A measurement that can be selected by name. */
export interface Case {
  readonly name: string
  /** A description for `--help`. */
  readonly about: string
  readonly run: Effect.Effect<Findings, BenchFailed, Plan | Scope.Scope>
}

/** The contenders that can be started, and a remark on each that cannot. */
export const present = (
  contenders: ReadonlyArray<Contender>
): Effect.Effect<{ readonly present: ReadonlyArray<Contender>; readonly remarks: ReadonlyArray<string> }> =>
  Effect.gen(function* () {
    const remarks = contenders.flatMap(({ absence, name }) =>
      absence === undefined ? [] : [`${name} was left out: ${absence}.`]
    )
    yield* Effect.forEach(remarks, remark => Console.error(remark), { discard: true })
    return { present: contenders.filter(({ absence }) => absence === undefined), remarks }
  })

/** Checks, before the measurement, that a server returns the right answer. */
export const expectCount = (
  running: Running,
  path: string,
  member: "changes" | "items",
  count: number
): Effect.Effect<void, BenchFailed> =>
  Effect.flatMap(ask(running, path), body => {
    const answer: Readonly<Record<string, unknown>> = JSON.parse(body)
    const list = answer[member]
    return Array.isArray(list) && list.length === count
      ? Effect.void
      : new BenchFailed({ reason: `GET ${path} should answer ${count} ${member}: ${body.slice(0, 200)}` })
  })
