/**
 * Configuration variables that explain themselves: a wrong value is reported with the variable's name, the
 * value (unless it is secret) and what is allowed, and all wrong ones are reported together. An empty or blank
 * text counts as unset.
 */
import { Config, ConfigError, Duration, Either, Option, Redacted } from "effect"

/** A variable as `causeway --help` and the documentation show it. */
export interface Described {
  readonly name: string
  readonly description: string
  readonly allowed: string
  readonly default: string
}

const described = new Map<string, Described>()

/** All variables declared so far, in order of declaration. */
export const all = (): ReadonlyArray<Described> => [...described.values()]

interface Options<A> {
  readonly description: string
  readonly default: A
}

/** A value as a message may show it: what stands before an `@` or in the query of an address may be a password. */
const quoted = (text: string): string =>
  JSON.stringify(text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, "$1…@").replace(/\?.*$/s, "?…"))

/**
 * A variable with a syntax of its own: `allowed` completes "… is not", and `shown` stands for the default in the
 * help. The value of a `secret` one is never quoted, and of another no part that may hold a password. `parse` gets the
 * text without the blanks around it, or exactly as it was set where it is `verbatim`.
 */
export const declare = <A>(
  name: string,
  options: { readonly description: string; readonly allowed: string; readonly default: A; readonly shown: string },
  parse: (text: string) => Option.Option<A>,
  secret = false,
  verbatim = false
): Config.Config<A> => {
  described.set(name, { name, description: options.description, allowed: options.allowed, default: options.shown })
  return Config.string(name).pipe(
    Config.mapOrFail(text =>
      text.trim() === ""
        ? Either.right(options.default)
        : Either.fromOption(parse(verbatim ? text : text.trim()), () =>
            ConfigError.InvalidData([], `${secret ? "the value" : quoted(text)} is not ${options.allowed}`)
          )
    ),
    Config.withDefault(options.default),
    Config.withDescription(options.description)
  )
}

/** A whole number between two bounds, both included. */
export const integer = (
  name: string,
  options: Options<number> & { readonly min: number; readonly max: number }
): Config.Config<number> =>
  declare(
    name,
    { ...options, allowed: `a whole number from ${options.min} to ${options.max}`, shown: String(options.default) },
    text => {
      const number = /^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN
      return number >= options.min && number <= options.max ? Option.some(number) : Option.none()
    }
  )

/** A text; any is allowed. */
export const string = (name: string, options: Options<string>): Config.Config<string> =>
  declare(name, { ...options, allowed: "any text", shown: options.default }, text => Option.some(text))

/** `true` or `false`, also `1`/`0`, `yes`/`no`, `on`/`off`, in either case. */
export const boolean = (name: string, options: Options<boolean>): Config.Config<boolean> =>
  declare(name, { ...options, allowed: "true or false", shown: String(options.default) }, text => {
    const lower = text.toLowerCase()
    if (["true", "1", "yes", "on"].includes(lower)) return Option.some(true)
    if (["false", "0", "no", "off"].includes(lower)) return Option.some(false)
    return Option.none()
  })

/** A length of time, as in `7 days` or `30 seconds`; nothing when it is not set. */
export const optionalDuration = (
  name: string,
  options: { readonly description: string; readonly shown: string }
): Config.Config<Option.Option<Duration.Duration>> =>
  declare(
    name,
    {
      description: options.description,
      allowed: "a duration such as 7 days, 12 hours or 30 seconds",
      default: Option.none<Duration.Duration>(),
      shown: options.shown
    },
    text =>
      Option.map(
        Option.filter(
          Duration.decodeUnknown(text),
          duration => Duration.isFinite(duration) && Duration.toMillis(duration) > 0
        ),
        Option.some
      )
  )

/**
 * A secret that goes into an `Authorization` header, never shown; nothing when it is not set. What no header could
 * carry as one token (RFC 9110, 5.5 and RFC 6750, 2.1) is refused rather than never matched.
 */
export const optionalCredential = (
  name: string,
  options: { readonly description: string; readonly shown: string }
): Config.Config<Option.Option<Redacted.Redacted>> =>
  declare(
    name,
    {
      description: options.description,
      allowed: "visible ASCII without blanks",
      default: Option.none<Redacted.Redacted>(),
      shown: options.shown
    },
    text => (/^[\x21-\x7e]+$/.test(text) ? Option.some(Option.some(Redacted.make(text))) : Option.none()),
    true
  )

/**
 * A secret that is never shown; nothing when it is not set. It is taken exactly as it was set, blanks and line breaks
 * at its ends included: whoever else has the secret does not trim it either.
 */
export const optionalSecret = (
  name: string,
  options: { readonly description: string; readonly shown: string }
): Config.Config<Option.Option<Redacted.Redacted>> =>
  declare(
    name,
    {
      description: options.description,
      allowed: "any text, taken exactly as it is",
      default: Option.none<Redacted.Redacted>(),
      shown: options.shown
    },
    text => Option.some(Option.some(Redacted.make(text))),
    true,
    true
  )
