import { Schema } from "effect"

/** A query parameter that is switched on by `1`. */
export const Flag = (description: string) =>
  Schema.optionalWith(
    Schema.Literal("0", "1").annotations({
      description,
      message: ({ actual }) => ({ message: `must be 0 or 1, not ${JSON.stringify(actual)}`, override: true })
    }),
    { exact: true }
  )
