import { Schema } from "effect"
import * as Limits from "./Limits.ts"

const isObject = (u: unknown): u is Readonly<Record<string, unknown>> =>
  typeof u === "object" && u !== null && !Array.isArray(u)

/** `__proto__` fits the pattern, yet assigning it would set no variable but a prototype. */
const isName = (name: string): boolean => /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/.test(name) && name !== "__proto__"

const problems = (variables: Readonly<Record<string, unknown>>): ReadonlyArray<Schema.FilterIssue> => {
  const entries = Object.entries(variables)
  if (entries.length > Limits.variables) {
    return [{ path: [], message: `has ${entries.length} names; the limit is ${Limits.variables}` }]
  }
  // What stands there is not repeated: it may be a secret.
  return entries.flatMap(([name, value]) =>
    !isName(name)
      ? [{ path: [name.slice(0, 64)], message: "is not a name for a variable" }]
      : typeof value !== "string"
        ? [{ path: [name], message: "must be text" }]
        : []
  )
}

const Checked = Schema.declare(isObject, {
  identifier: "Variables",
  message: () => "must be an object of texts by name"
}).pipe(Schema.filter(problems))

/** Texts by name, on their way to becoming what `value` makes of them. No message repeats a text. */
export const variables = <A>(value: Schema.Schema<A, string>, description: string) =>
  Schema.compose(Checked, Schema.Record({ key: Schema.String, value }), { strict: false }).annotations({
    description,
    jsonSchema: {
      type: "object",
      description,
      additionalProperties: { type: "string" },
      maxProperties: Limits.variables
    }
  })
