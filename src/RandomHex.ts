import { Array as Arr, Effect, Random } from "effect"

/** Random hexadecimal digits, 8 for each word. */
export const randomHex = (words: number): Effect.Effect<string> =>
  Effect.map(Effect.all(Arr.makeBy(words, () => Random.nextIntBetween(0, 2 ** 32))), all =>
    all.map(word => word.toString(16).padStart(8, "0")).join("")
  )
