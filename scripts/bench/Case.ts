import { Console, Effect, type Scope } from "effect"
import { BenchFailed } from "./BenchFailed.ts"
import type { Contender } from "./Contender.ts"
import type { Findings } from "./Findings.ts"
import type { Plan } from "./Plan.ts"
import { ask, type Running } from "./Server.ts"

/** Something that is measured, by a name under which it can be asked for. */
export interface Case {
  readonly name: string
  /** In words, for `--help`. */
  readonly about: string
  readonly run: Effect.Effect<Findings, BenchFailed, Plan | Scope.Scope>
}

/** The contenders that can take part, and a remark on each that cannot. */
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

/** Makes sure that a server answers what the case is about, before it is measured. */
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
