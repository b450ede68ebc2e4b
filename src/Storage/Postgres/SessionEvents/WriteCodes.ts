/**
 * The numbers of operations and outcomes in calls of `causeway.write_sessions`. Its text has them too; a test compares
 * both.
 */

/** The operations of a group. */
export const Op = { append: 0, open: 1, renewEpoch: 2, configure: 3, remove: 4, release: 5 } as const

/** The outcomes that the function returns: the first number of an array, or the number alone. */
export const Result = { stored: 0, outOfStep: 1, elsewhere: 2, history: 3 } as const
