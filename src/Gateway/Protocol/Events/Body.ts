import { Schema } from "effect"
import { Identifier, optional, schemaName } from "../Fields.ts"

/** The body of an event: what it says beside its envelope. */
export const body = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), ...fields }).annotations({
    identifier: schemaName(type, "Event"),
    description
  })

/** Most events belong to a turn, and name it where the agent says so. */
export const turn = { turnId: optional(Identifier) }
