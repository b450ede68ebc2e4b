import * as fc from "fast-check"

/**
 * A code point as text, for `fc.string({ unit: codePoint })`. The unit `binary` of fast-check is the same, but it builds a
 * map of all 1,112,064 code points in each process, which takes more than a second.
 */
export const codePoint = fc
  .oneof(fc.integer({ min: 0, max: 0xd7ff }), fc.integer({ min: 0xe000, max: 0x10ffff }))
  .map(code => String.fromCodePoint(code))
