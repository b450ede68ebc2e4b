import { Schema } from "effect"

/** Printable ASCII characters. The server has removed white space at the ends. */
const idempotencyKey = /^[\x20-\x7e]{1,256}$/

/** The header that identifies a write, so that its repetition gets the same answer. */
export const idempotency = {
  "idempotency-key": Schema.optionalWith(
    Schema.String.pipe(
      Schema.filter(text => idempotencyKey.test(text), {
        message: ({ actual }) => ({
          message: `must be 1 to 256 printable characters of ASCII, not ${JSON.stringify(String(actual).slice(0, 64))}`,
          override: true
        })
      })
    ).annotations({
      jsonSchema: {
        type: "string",
        minLength: 1,
        maxLength: 256,
        description:
          "Any text that names this write. A repeated request with the same text gets the first answer, and is not applied again. The text is stored for 24 hours, or less if its tenant has written very many."
      }
    }),
    { exact: true }
  )
}
