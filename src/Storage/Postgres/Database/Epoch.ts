/** An expression of SQL for a new random epoch, of a log or of a history. */
export const newEpoch = "left(replace(gen_random_uuid()::text, '-', ''), 16)"
