/**
 * Names for sessions, turns and other things, by chance from Effect's Random.
 */
import { Array as Arr, Clock, Effect, Random } from "effect"

const words = (count: number): Effect.Effect<string> =>
  Effect.map(Effect.all(Arr.makeBy(count, () => Random.nextIntBetween(0, 2 ** 32))), all =>
    all.map(word => word.toString(16).padStart(8, "0")).join("")
  )

/** 32 hexadecimal digits. */
export const unique: Effect.Effect<string> = words(4)

/** A session's id: 12 hexadecimal digits of time, so that ids are in the order of creation, and 24 of chance. */
export const session: Effect.Effect<string> = Effect.zipWith(
  Clock.currentTimeMillis,
  words(3),
  (now, chance) => `${Math.trunc(now).toString(16).padStart(12, "0")}${chance}`
)

/** When a session's id was made, in epoch milliseconds: the time of its creation. */
export const timeOf = (id: string): number => Number.parseInt(id.slice(0, 12), 16)

const sessionPattern = /^[0-9a-f]{36}$/

/** Whether a text may be a session's id at all. */
export const isSession = (text: string): boolean => sessionPattern.test(text)

/** A turn's id. */
export const turn: Effect.Effect<string> = Effect.map(unique, id => `turn-${id}`)
