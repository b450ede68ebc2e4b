/**
 * Configuration variables with a description. An error names the variable, its value unless it is secret, and what is
 * allowed. An empty or blank value counts as unset.
 */
import { Config, ConfigError, Duration, Either, Option, Redacted } from "effect"

/** A variable as `causeway serve --help` and the documentation list it. */
export interface Variable {
  readonly name: string
  readonly description: string
  readonly allowed: string
  readonly default: string
}

const variables = new Map<string, Variable>()

export const all = (): ReadonlyArray<Variable> => [...variables.values()].sort((a, b) => (a.name < b.name ? -1 : 1))

interface Options<A> {
  readonly description: string
  readonly default: A
}

/** A value for an error message, without the parts of a URL that may contain a password. */
const quoted = (text: string): string =>
  JSON.stringify(text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, "$1…@").replace(/\?.*$/s, "?…"))

/**
 * A variable with its own parser. `allowed` completes the error "… is not", and `shown` is the default in the help.
 * The value of a `secret` variable is never quoted. `parse` gets the trimmed text, or the exact text if `verbatim`.
 */
export const declare = <A>(
  name: string,
  options: { readonly description: string; readonly allowed: string; readonly default: A; readonly shown: string },
  parse: (text: string) => Option.Option<A>,
  secret = false,
  verbatim = false
): Config.Config<A> => {
  variables.set(name, { name, description: options.description, allowed: options.allowed, default: options.shown })
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

interface Described {
  readonly description: string
  /** What the help shows as the default; `none` if absent. */
  readonly shown?: string
}

/** A variable without a default: nothing when it is not set. */
const optional = <A>(
  name: string,
  options: Described,
  allowed: string,
  parse: (text: string) => Option.Option<A>,
  secret = false,
  verbatim = false
): Config.Config<Option.Option<A>> =>
  declare(
    name,
    { shown: "none", ...options, allowed, default: Option.none<A>() },
    text => Option.map(parse(text), Option.some),
    secret,
    verbatim
  )

type OptionalVariable<A> = (name: string, options: Described) => Config.Config<Option.Option<A>>

/** A length of time, as in `7 days` or `30 seconds`; nothing when it is not set. */
export const optionalDuration: OptionalVariable<Duration.Duration> = (name, options) =>
  optional(name, options, "a duration such as 7 days, 12 hours or 30 seconds", text =>
    Option.filter(
      Duration.decodeUnknown(text),
      duration => Duration.isFinite(duration) && Duration.toMillis(duration) > 0
    )
  )

/** An http or https URL without credentials and fragment. */
export const httpUrl = (text: string): Option.Option<URL> => {
  if (!URL.canParse(text)) return Option.none()
  const url = new URL(text)
  const isPlain = url.username === "" && url.password === "" && url.hash === ""
  return isPlain && /^https?:$/.test(url.protocol) ? Option.some(url) : Option.none()
}

/** A URL; nothing when it is not set. */
export const optionalUrl: OptionalVariable<URL> = (name, options) =>
  optional(name, options, "an http or https URL without credentials or fragment", httpUrl)

const baseOf = (text: string): Option.Option<string> =>
  Option.map(
    Option.filter(httpUrl(text), ({ search }) => search === ""),
    ({ origin, pathname }) => `${origin}${pathname.replace(/\/+$/, "")}`
  )

const plainUrl = "an http or https URL without credentials, query or fragment"

/** The base address of a service, without slashes at its end; nothing when it is not set. */
export const optionalBaseUrl: OptionalVariable<string> = (name, options) => optional(name, options, plainUrl, baseOf)

/** The same with a default. */
export const baseUrl = (name: string, options: Options<string>): Config.Config<string> =>
  declare(name, { ...options, allowed: plainUrl, shown: options.default }, baseOf)

/**
 * A secret for an `Authorization` header; nothing when it is not set. A value that is not one token in a header
 * (RFC 9110, 5.5 and RFC 6750, 2.1) is refused because it could never match.
 */
export const optionalCredential: OptionalVariable<Redacted.Redacted> = (name, options) =>
  optional(
    name,
    options,
    "visible ASCII without blanks",
    text => (/^[\x21-\x7e]+$/.test(text) ? Option.some(Redacted.make(text)) : Option.none()),
    true
  )

/** A secret; nothing when it is not set. It is not trimmed, since other holders of the secret use it untrimmed too. */
export const optionalSecret: OptionalVariable<Redacted.Redacted> = (name, options) =>
  optional(name, options, "any text, taken exactly as it is", text => Option.some(Redacted.make(text)), true, true)
