import { Schema } from "effect"

/** Printable characters of ASCII; the server has removed white space at the ends. */
const idempotencyKey = /^[\x20-\x7e]{1,256}$/

/** By what a write is remembered, so that its repetition is answered as it was. */
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
          "Any text that names this write. If the request is repeated with it while it is remembered, which is 24 hours at most and less where its tenant has written very many keys, it is answered as the first time and not applied again."
      }
    }),
    { exact: true }
  )
}
