/**
 * Base addresses of upstream services, as configuration variables.
 */
import { type Config, Option } from "effect"
import * as Setting from "../Setting.ts"

/** A base address without slashes at its end. */
export const parse = (text: string): Option.Option<string> => {
  if (!URL.canParse(text)) return Option.none()
  const url = new URL(text)
  const isPlain = url.username === "" && url.password === "" && url.search === "" && url.hash === ""
  return isPlain && (url.protocol === "http:" || url.protocol === "https:")
    ? Option.some(`${url.origin}${url.pathname.replace(/\/+$/, "")}`)
    : Option.none()
}

const allowed = "an http or https URL without credentials, query or fragment"

/** A base address that may be absent. */
export const optional = (
  name: string,
  options: { readonly description: string; readonly shown: string }
): Config.Config<Option.Option<string>> =>
  Setting.declare(name, { ...options, allowed, default: Option.none<string>() }, text =>
    text === "" ? Option.some(Option.none()) : Option.map(parse(text), Option.some)
  )

export const withDefault = (
  name: string,
  options: { readonly description: string; readonly default: string }
): Config.Config<string> =>
  Setting.declare(name, { ...options, allowed, shown: options.default }, text =>
    text === "" ? Option.some(options.default) : parse(text)
  )
