/** Maps one platform event to one client event, field by field, checked by the schema of the client event. */
import { Option, Schema, SchemaAST } from "effect"
import { EventBody, type EventBodyOf, type EventType } from "../Protocol/Event.ts"

/** The fields of a platform event, as parsed from JSON. */
export type Payload = Readonly<Record<string, unknown>>

/** The context of a mapping. */
export interface Situation {
  /** The turn in progress. Events without a turn id belong to it. */
  readonly turnId?: string | undefined
}

/** Client events, and whether every field of the payload was valid. */
export interface Outcome {
  readonly events: ReadonlyArray<EventBody>
  readonly isWhole: boolean
}

/** Maps a payload; none if a required field is missing or invalid. */
export type Rule = (payload: Payload, situation: Situation) => Option.Option<Outcome>

/** The source of a field. */
export interface Source {
  /** Other members of the payload. The first valid one is used; a dot separates the members of a path. */
  readonly names: ReadonlyArray<string>
  /** Used if no member is valid. */
  readonly fallback: Option.Option<unknown>
  /** Whether the payload is ignored. */
  readonly isFixed: boolean
}

/** The field has other names at the platform. */
export const from = (...names: ReadonlyArray<string>): Source => ({ names, fallback: Option.none(), isFixed: false })

/** The field has a default. */
export const orElse = (fallback: unknown, ...names: ReadonlyArray<string>): Source => ({
  names,
  fallback: Option.some(fallback),
  isFixed: false
})

/** The field always has this value. */
export const always = (value: unknown): Source => ({ names: [], fallback: Option.some(value), isFixed: true })

const own = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined

/** The field is never taken from the platform. */
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
      throw new TypeError(`The fallback of ${String(name)} does not match its schema`)
    }
    return {
      name: String(name),
      paths: source.isFixed ? [] : [[String(name)], ...source.names.map(path => path.split("."))],
      fallback: source.fallback,
      isOptional,
      accepts
    }
  }

const read = ({ paths, accepts }: Field, payload: Payload): { readonly value: unknown; readonly isWrong: boolean } => {
  let isWrong = false
  for (const path of paths) {
    const value = path.reduce<unknown>(own, payload)
    if (value === undefined) continue
    if (accepts(value)) return { value, isWrong: false }
    // Many serializers write null for an absent field.
    isWrong ||= value !== null
  }
  return { value: undefined, isWrong }
}

/**
 * The rule that makes one client event. A field is taken from the member with its own name, or else from its source in
 * `sources`. An invalid field is left out if it is optional; otherwise the payload is malformed.
 */
export const to = <Type extends EventType>(
  type: Type,
  sources: { readonly [Name in Exclude<keyof EventBodyOf<Type>, "type">]?: Source } = {}
): Rule => {
  const body = EventBody.members.find(({ fields }) => fields.type.literals[0] === type)!
  const isBody = Schema.is(Schema.make<EventBody>(body.ast))
  // Without a filter on the whole struct, checking the fields is enough.
  const isPlain = body.ast._tag === "TypeLiteral"
  const accepts = (event: unknown): event is EventBody => isPlain || isBody(event)
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

/** The rule for events that are not sent to clients. */
export const nothing: Rule = () => Option.some({ events: [], isWhole: true })

/** The events of several rules, all of which must succeed. */
export const all =
  (...rules: ReadonlyArray<Rule>): Rule =>
  (payload, situation) =>
    Option.map(Option.all(rules.map(rule => rule(payload, situation))), joined)

/** Joins outcomes into one. */
export const joined = (outcomes: ReadonlyArray<Outcome>): Outcome => ({
  events: outcomes.flatMap(({ events }) => events),
  isWhole: outcomes.every(({ isWhole }) => isWhole)
})
