/** How one platform event becomes one client event: field by field, checked by the client event's own schema. */
import { Option, Schema, SchemaAST } from "effect"
import type { EventBody } from "../Protocol/Event.ts"

/** The fields of a platform event, as parsed from JSON. */
export type Payload = Readonly<Record<string, unknown>>

/** What is known beside the event itself. */
export interface Situation {
  /** The turn in progress: events that name no turn belong to it. */
  readonly turnId?: string | undefined
}

/** Client events, and whether anything of the payload had to be left out as it was of the wrong kind. */
export interface Outcome {
  readonly events: ReadonlyArray<EventBody>
  readonly isWhole: boolean
}

/** Maps a payload, or finds that what the client event cannot do without is missing or wrong. */
export type Rule = (payload: Payload, situation: Situation) => Option.Option<Outcome>

/** Where a field comes from. */
export interface Source {
  /** Members of the payload beside the one of the field's own name, the first that fits; a dot leads inside. */
  readonly names: ReadonlyArray<string>
  /** Stands in where none fits. */
  readonly fallback: Option.Option<unknown>
  /** Whether the payload is not asked at all. */
  readonly isFixed: boolean
}

/** The field is called otherwise by the platform. */
export const from = (...names: ReadonlyArray<string>): Source => ({ names, fallback: Option.none(), isFixed: false })

/** The field has a value of its own where the platform gives none that fits. */
export const orElse = (fallback: unknown, ...names: ReadonlyArray<string>): Source => ({
  names,
  fallback: Option.some(fallback),
  isFixed: false
})

/** The field has this value whatever the platform says. */
export const always = (value: unknown): Source => ({ names: [], fallback: Option.some(value), isFixed: true })

const own = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined

/** The field is not the platform's to say. */
export const never: Source = { names: [], fallback: Option.none(), isFixed: true }

interface Field {
  readonly name: string
  readonly paths: ReadonlyArray<ReadonlyArray<string>>
  readonly fallback: Option.Option<unknown>
  readonly isOptional: boolean
  readonly accepts: (u: unknown) => boolean
}

const fieldOf =
  (sources: Readonly<Record<string, Source | undefined>>) =>
  ({ name, type, isOptional }: SchemaAST.PropertySignature): Field => {
    const source = sources[String(name)] ?? from()
    const accepts = Schema.is(Schema.make(type))
    if (!Option.match(source.fallback, { onNone: () => true, onSome: accepts })) {
      throw new TypeError(`The value that stands in for ${String(name)} does not fit`)
    }
    return {
      name: String(name),
      paths: source.isFixed ? [] : [[String(name)], ...source.names.map(path => path.split("."))],
      fallback: source.fallback,
      isOptional,
      accepts
    }
  }

/** What a payload says of a field: something that fits, nothing, or only what does not fit. */
const read = ({ paths, accepts }: Field, payload: Payload): { readonly value: unknown; readonly isWrong: boolean } => {
  let isWrong = false
  for (const path of paths) {
    const value = path.reduce<unknown>(own, payload)
    if (value === undefined) continue
    if (accepts(value)) return { value, isWrong: false }
    // Many serialisers print null for what is absent.
    isWrong ||= value !== null
  }
  return { value: undefined, isWrong }
}

/**
 * The rule that makes one client event.
 *
 * A field is looked for under its own name first, then where `sources` says. One that does not fit is left out where
 * the event can do without it; where it cannot, the payload is malformed.
 */
export const to = <Body extends EventBody, Encoded, Name extends string>(
  body: Schema.Schema<Body, Encoded> & {
    readonly fields: Readonly<Record<Name, unknown>> & { readonly type: Schema.Literal<[Body["type"]]> }
  },
  sources: { readonly [K in Exclude<Name, "type">]?: Source } = {}
): Rule => {
  const isBody = Schema.is(body)
  // Where nothing is said of the fields together, those that fit one by one fit.
  const isPlain = body.ast._tag === "TypeLiteral"
  const accepts = (event: unknown): event is Body => isPlain || isBody(event)
  const [type] = body.fields.type.literals
  const fields = SchemaAST.getPropertySignatures(body.ast).map(fieldOf({ ...sources, type: always(type) }))
  return (payload, { turnId }) => {
    const event: Record<string, unknown> = {}
    let isWhole = true
    for (const field of fields) {
      const { value, isWrong } = read(field, payload)
      if (isWrong) isWhole = false
      if (value !== undefined) event[field.name] = value
      else if (Option.isSome(field.fallback)) event[field.name] = field.fallback.value
      else if (field.name === "turnId" && !isWrong && field.accepts(turnId)) event[field.name] = turnId
      else if (!field.isOptional) return Option.none()
    }
    return accepts(event) ? Option.some({ events: [event], isWhole }) : Option.none()
  }
}

/** The rule for what is known and says nothing to clients. */
export const nothing: Rule = () => Option.some({ events: [], isWhole: true })

/** The events of several rules, of which each has to succeed. */
export const all =
  (...rules: ReadonlyArray<Rule>): Rule =>
  (payload, situation) =>
    Option.map(Option.all(rules.map(rule => rule(payload, situation))), joined)

const joined = (outcomes: ReadonlyArray<Outcome>): Outcome => ({
  events: outcomes.flatMap(({ events }) => events),
  isWhole: outcomes.every(({ isWhole }) => isWhole)
})
