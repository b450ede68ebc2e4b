/**
 * How often the loops of tests are repeated, as a part of what they do in `npm run test:system`: a quarter in `npm test`,
 * twenty times in `npm run test:soak`. All test files that import this module run in each of these.
 */
export const scale = Number(process.env.TEST_SCALE ?? 0.25)

/** So many repetitions in `npm run test:system`, and one at least everywhere. */
export const times = (count: number): number => Math.max(1, Math.ceil(count * scale))

/** Whether the long forms run: more failures, in a store and sessions with more in them. */
export const isLong = scale >= 1

/** Whether the longest forms run, which take hours. */
export const isSoak = scale >= 20

/**
 * Registers a test where the long forms run, and nowhere else. Its rule has a quicker test, which runs everywhere.
 *
 * @param register a function that registers tests, such as `it.scoped`
 */
export const onlyLong = <A extends (...args: ReadonlyArray<never>) => unknown>(register: A): A =>
  isLong ? register : ((() => undefined) as unknown as A)
