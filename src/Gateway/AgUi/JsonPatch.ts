/** JSON Patch (RFC 6902), which clients of AG-UI require of a `STATE_DELTA`. */
import { Schema } from "effect"

const Pointer = Schema.String.pipe(Schema.pattern(/^(?:\/(?:[^/~]|~[01])*)*$/))

const Operation = Schema.Union(
  Schema.Struct({ op: Schema.Literal("add", "replace", "test"), path: Pointer, value: Schema.Unknown }),
  Schema.Struct({ op: Schema.Literal("remove"), path: Pointer }),
  Schema.Struct({ op: Schema.Literal("move", "copy"), path: Pointer, from: Pointer })
)

export const isPatch = Schema.is(Schema.Array(Operation))
