/** What the service has answered last: when, and whether it is still so. */
import { type Signal, signal } from "@preact/signals"

export interface Answered<A> {
  readonly value: A
  /** Epoch milliseconds. */
  readonly at: number
  /** Whether a later request had no answer. */
  readonly isOld: boolean
}

/** A source of figures; `undefined` before its first answer. */
export type Source<A> = Signal<Answered<A> | undefined>

export const source = <A>(): Source<A> => signal<Answered<A> | undefined>(undefined)

/** Takes the answer to a request, or that there is none. */
export const take = <A>(source: Source<A>, value: A | null): void => {
  const { value: last } = source
  if (value !== null) source.value = { value, at: Date.now(), isOld: false }
  else if (last !== undefined) source.value = { ...last, isOld: true }
}
