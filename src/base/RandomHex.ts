/** Random ids. */
import { Array as Arr, Context, DefaultServices, Effect, Random } from "effect"

/** Random numbers of 32 bits each. */
type Words = ReadonlyArray<number>

const textOf = (words: Words): string => words.map(word => word.toString(16).padStart(8, "0")).join("")

const fromSystem = (count: number): Words => Array.from(crypto.getRandomValues(new Uint32Array(count)))

const usual = Context.get(DefaultServices.liveServices, Random.Random)

/**
 * Random hexadecimal digits, 8 for each word. They come from the operating system unless the program provides its own
 * `Random`: Effect's starts from a seed of 32 bits, so that two processes could make the same sequence of ids.
 */
export const randomHex = (words: number): Effect.Effect<string> =>
  Effect.randomWith(random =>
    random === usual
      ? Effect.sync(() => textOf(fromSystem(words)))
      : Effect.map(Effect.all(Arr.makeBy(words, () => random.nextIntBetween(0, 2 ** 32))), textOf)
  )
