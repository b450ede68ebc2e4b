/** The addresses of AG-UI agents, what is sent to them, and how much of a conversation. */
import { Config, ConfigError, Either, Option, Redacted } from "effect"
import { MiB } from "../../base/Bytes.ts"
import * as Setting from "../../base/Setting.ts"
import type { Times } from "./Agent.ts"
import type * as History from "./History.ts"

/** The agents of a gateway. */
export interface Settings {
  /** The address of the agent of all types without an address of their own. */
  readonly url: Option.Option<string>
  /** The addresses of agent types. */
  readonly urls: ReadonlyMap<string, string>
  /** Sent as a bearer token. */
  readonly apiKey: Option.Option<Redacted.Redacted>
  /** Sent with each run. */
  readonly headers: Readonly<Record<string, Redacted.Redacted>>
  /** Base address of the health probe, for agents that have none. */
  readonly healthUrl: Option.Option<string>
  readonly history: History.Limits
  /** The maximum bytes of an event; 1 MiB if absent. */
  readonly eventBytes?: number
  /** The maximum bytes of events that have not arrived whole, over all runs; 128 MiB if absent. */
  readonly unfinishedBytes?: number
  /** Time limits that differ from the defaults. */
  readonly times?: Partial<Times>
}

/** No agents, and the default limits of the history: many servers take bodies of up to 1 MiB. */
export const none: Settings = {
  url: Option.none(),
  urls: new Map(),
  apiKey: Option.none(),
  headers: {},
  healthUrl: Option.none(),
  history: { messages: 400, bytes: 512 * 1024 }
}

/** Whether there is an agent. */
export const isSet = ({ url, urls }: Pick<Settings, "url" | "urls">): boolean => Option.isSome(url) || urls.size > 0

const longestType = 256

/** The values of pairs `name=value` by their names; none unless the names differ and all values are allowed. */
const pairsIn = <A>(
  pairs: ReadonlyArray<string>,
  valueOf: (name: string, text: string) => Option.Option<A>
): Option.Option<ReadonlyMap<string, A>> => {
  const entries = pairs.flatMap(pair => {
    const [name = "", ...rest] = pair
      .trim()
      .split("=")
      .map(part => part.trim())
    return pair.trim() === "" ? [] : [Option.map(valueOf(name, rest.join("=")), value => [name, value] as const)]
  })
  const values = Option.map(Option.all(entries), all => new Map(all))
  return Option.filter(values, ({ size }) => size === entries.length)
}

/** `coder=https://…, writer=https://…` */
const addressesIn = (text: string) =>
  pairsIn(text.split(/[\s,]+/), (type, url) =>
    type === "" || type.length > longestType ? Option.none() : Option.map(Setting.httpUrl(url), ({ href }) => href)
  )

/** Header fields that the gateway sets. */
const reserved =
  /^(?:accept|connection|content-.*|expect|host|keep-alive|te|trailer|transfer-encoding|upgrade|traceparent)$/i

const isToken = (name: string) => /^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(name)

const secretIn = (text: string) =>
  Option.liftThrowable(decodeURIComponent)(text).pipe(
    Option.filter(value => /^[\x20-\x7e]+$/.test(value)),
    Option.map(value => Redacted.make(value))
  )

/** `name=value,name=value`, each value percent-encoded where it has a comma or a percent sign. */
const headersIn = (text: string) => {
  const pairs = text.split(",").map(pair => pair.replace(/^[^=]*/, name => name.toLowerCase()))
  const headers = pairsIn(pairs, (name, value) =>
    isToken(name) && !reserved.test(name) ? secretIn(value) : Option.none()
  )
  return Option.map(headers, (all): Readonly<Record<string, Redacted.Redacted>> => Object.fromEntries(all))
}

const variables = {
  url: Setting.optionalUrl("AGENT_URL", {
    description: "Address of an AG-UI agent, instead of an agent platform"
  }).pipe(Config.map(Option.map(({ href }) => href))),
  urls: Setting.declare(
    "AGENT_URLS",
    {
      description: "Addresses of the AG-UI agents of agent types; other types have the agent of AGENT_URL, or none",
      allowed: "a list of types with http or https URLs, such as coder=https://one.example, writer=https://two.example",
      default: none.urls,
      shown: "none"
    },
    addressesIn
  ),
  headers: Setting.declare(
    "AGENT_HEADERS",
    {
      description: "Header fields for AG-UI agents, such as x-tenant=a,x-region=eu; values may be percent-encoded",
      allowed: "a list name=value,name=value of header fields that the gateway does not set itself",
      default: none.headers,
      shown: "none"
    },
    headersIn,
    true
  ),
  apiKey: Setting.optionalCredential("AGENT_API_KEY", {
    description: "Bearer credential for AG-UI agents"
  }),
  healthUrl: Setting.optionalBaseUrl("AGENT_HEALTH_URL", {
    description: "Base address whose /health is probed; by default that of each AG-UI agent"
  }),
  history: Config.all({
    messages: Setting.integer("AGENT_HISTORY_MESSAGES", {
      description:
        "Messages of the conversation that an AG-UI agent gets at most; 1 for agents with a memory of their own",
      default: none.history.messages,
      min: 1,
      max: 100_000
    }),
    bytes: Setting.integer("AGENT_HISTORY_BYTES", {
      description:
        "Bytes of the conversation that an AG-UI agent gets at most, as JSON; the newest message is always sent",
      default: none.history.bytes,
      min: 1024,
      max: 16 * MiB
    })
  })
}

const refused = (name: string, problem: string) => Either.left(ConfigError.InvalidData([name], problem))

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.mapOrFail(Config.all(variables), settings => {
  const { apiKey, headers, healthUrl } = settings
  if (Option.isSome(apiKey) && Object.hasOwn(headers, "authorization")) {
    return refused("AGENT_HEADERS", "it has authorization, which AGENT_API_KEY sets too")
  }
  return Option.isSome(healthUrl) && !isSet(settings)
    ? refused("AGENT_HEALTH_URL", "there is no agent: AGENT_URL is not set")
    : Either.right(settings)
})
