/**
 * A generator of numbers from 0 (inclusive) to a bound (exclusive). The same seed gives the same numbers, so that all
 * contenders get the same requests. It is mulberry32, because choosing a key must be cheap.
 */
export const make = (seed: number): ((bound: number) => number) => {
  let state = seed | 0
  return bound => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * bound)
  }
}
