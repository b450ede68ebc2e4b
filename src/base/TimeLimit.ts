/** A time limit that many direct effects share. */
import { Effect, Exit, Runtime, type Scope } from "effect"
import * as Direct from "./Direct.ts"
import { type Linked, LinkedList } from "./Intrusive.ts"
import * as Supervision from "./Supervision.ts"
import * as Monotonic from "./Time/Monotonic.ts"

/** The limit, and what happens at its end. */
export interface Options<E> {
  /** The name of the fiber that waits for the ends, for the log. */
  readonly name: string
  /** The time limit, in milliseconds. */
  readonly millis: number
  readonly onTimeout: () => E
}

export type TimeLimit<E> = <A>(
  work: Effect.Effect<A, E>,
  /** Returns whether the answer is arriving. Then the work has no more limit, so that it must end by itself. */
  isArriving?: () => boolean
) => Effect.Effect<A, E>

/** Work in progress. */
interface Pending extends Linked<Pending> {
  /** In monotonic milliseconds. */
  readonly endsAt: number
  readonly onEnd: () => void
}

const noop = (): void => {}

const never = (): boolean => false

/** Makes a limit that one fiber of the scope enforces. Limited work is direct, and is interrupted at the end. */
export const make = <E>(
  runtime: Runtime.Runtime<never>,
  { millis, name, onTimeout }: Options<E>
): Effect.Effect<TimeLimit<E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const fork = Runtime.runFork(runtime)
    const clock = yield* Effect.clock
    /** In the order of their ends, as all have the same limit. */
    const pending = new LinkedList<Pending>()
    const occupancy = new Supervision.Occupancy()

    const enforce = Effect.gen(function* () {
      yield* occupancy.occupied
      const { oldest } = pending
      if (oldest === undefined) return occupancy.set(false)
      const left = oldest.endsAt - Monotonic.unsafeMillis(clock)
      if (left > 0) yield* Effect.sleep(left)
      else oldest.onEnd()
    })
    yield* Supervision.forkScoped(name, Effect.forever(enforce))

    const limit = <A>(work: Effect.Effect<A, E>, isArriving: () => boolean): Effect.Effect<A, E> =>
      Direct.async(resume => {
        let isOver = false
        let entry: Pending | undefined
        const leave = (): void => {
          if (entry !== undefined) pending.remove(entry)
          entry = undefined
        }
        const end = (exit: Exit.Exit<A, E>): void => {
          if (isOver) return
          isOver = true
          leave()
          resume(exit)
        }
        const interrupt = Direct.run(work, fork, end)
        if (isOver) return noop
        const onEnd = (): void => {
          leave()
          if (isArriving()) return
          end(Exit.fail(onTimeout()))
          interrupt()
        }
        entry = { endsAt: Monotonic.unsafeMillis(clock) + millis, onEnd, previous: undefined, next: undefined }
        pending.add(entry)
        occupancy.set(true)
        return () => {
          isOver = true
          leave()
          interrupt()
        }
      })

    return (work, isArriving = never) => Direct.whilePending(work, rest => limit(rest, isArriving))
  })
