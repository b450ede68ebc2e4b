/** Finds the address and the credential for a command, in options, the environment and profiles. */
import { Config, Duration, Effect, Option, Redacted } from "effect"
import * as Client from "../EffectClient/Client.ts"
import * as ExactJson from "../Json/ExactJson.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import { flag, numberOption, text } from "./CommandOptions.ts"
import * as Profile from "./Profile.ts"

/** The default address: the service of this machine. */
export const defaultUrl = "http://127.0.0.1:8080"

/** The key of dev mode. It is not secret. */
export const developmentKey = "dev-key"

/** The credential that a command needs: the key of the store, or the token of a user of sessions. */
export type Kind = "store" | "sessions"

/** The variables of a credential: for itself, and for the path of its file. */
export const variables = {
  store: { token: "CAUSEWAY_TOKEN", file: "CAUSEWAY_TOKEN_FILE" },
  sessions: { token: "CAUSEWAY_SESSION_TOKEN", file: "CAUSEWAY_SESSION_TOKEN_FILE" }
} as const

const optionsOf = (kind: Kind) => ({
  url: text("url", `Address of the service, or CAUSEWAY_URL; default ${defaultUrl}`, "address"),
  tokenFile: text(
    "token-file",
    `File with the credential, or ${variables[kind].file}, or ${variables[kind].token} for the credential itself`,
    "file"
  ),
  profile: text(
    "profile",
    "Profile with address and credential, or CAUSEWAY_PROFILE; default the profile default",
    "name"
  ),
  timeout: numberOption("timeout", "seconds", "How long an answer may take", 30),
  json: flag("json", "Print JSON; default in a pipe or a file")
})

/** The options of every command that calls a service. */
export const options = optionsOf("store")

/** The options of every command that calls the gateway of a service. */
export const sessionOptions = optionsOf("sessions")

/** The values of the options. */
export interface Given {
  readonly url: Option.Option<string>
  readonly tokenFile: Option.Option<string>
  readonly profile: Option.Option<string>
  readonly timeout: number
}

/** A service, and the credential for it. */
export interface Connection {
  /** Without a final slash. */
  readonly url: string
  /** The kind of the credential. */
  readonly kind: Kind
  /** `""` if there is none. */
  readonly token: Redacted.Redacted
  /** The source of the credential, for messages. */
  readonly source: string
  readonly timeout: Duration.Duration
}

/** A service with a client of its store. */
export interface Opened {
  readonly connection: Connection
  readonly client: Client.Service
}

const variable = (name: string): Effect.Effect<Option.Option<string>> =>
  Effect.orDie(Config.option(Config.nonEmptyString(name)))

const loopback = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/i

const parseUrl = (text: string, source: string): Effect.Effect<string, CommandFailed> => {
  const refuse = (problem: string) => wrong(`${source}: ${problem}`, `It looks like ${defaultUrl}`)
  // A text that may contain a password is not printed.
  const shown = /[@?#]/.test(text) ? "it" : JSON.stringify(text)
  if (!URL.canParse(text)) return refuse(`${shown} is not an address`)
  const { hash, password, protocol, search, username } = new URL(text)
  if (username !== "" || password !== "") return refuse("an address must not have a user or a password")
  if (!/^https?:$/.test(protocol) || search !== "" || hash !== "") {
    return refuse(`${shown} is not an http or https address without query and fragment`)
  }
  return Effect.succeed(text.replace(/\/+$/, ""))
}

interface Source<A> {
  readonly value: A
  readonly source: string
}

const from = <A>(value: Option.Option<A>, source: string): Option.Option<Source<A>> =>
  Option.map(value, value => ({ value, source }))

/** Whether a credential may be sent to `url`. One that is configured with an address is sent only to that origin. */
const belongsTo = (url: string, configuredUrl: string | undefined): boolean =>
  configuredUrl === undefined || (URL.canParse(configuredUrl) && new URL(configuredUrl).origin === new URL(url).origin)

/** The credentials for `url` in order of precedence. Each file is read when it is used. */
const credentials = (given: Given, kind: Kind, profile: Profile.Profile, profileName: string, url: string) =>
  Effect.gen(function* () {
    const isLocal = loopback.test(new URL(url).hostname)
    const urlOfEnvironment = Option.getOrUndefined(yield* variable("CAUSEWAY_URL"))
    const ofOrigin = <A>(configuredUrl: string | undefined, found: Option.Option<A>): Option.Option<A> =>
      Option.filter(found, () => belongsTo(url, configuredUrl))
    const { file, token } = variables[kind]
    const read = (path: Option.Option<Source<string>>) =>
      Option.map(path, ({ source, value }) => ({ source, read: Profile.readToken(value) }))
    const take = (text: Option.Option<Source<string>>) =>
      Option.map(text, ({ source, value }) => ({
        source,
        read: Effect.suspend(() => Profile.credentialOf(source, value))
      }))
    const isStore = kind === "store"
    const environment = [
      ofOrigin(urlOfEnvironment, take(from(yield* variable(token), token))),
      ofOrigin(urlOfEnvironment, read(from(yield* variable(file), file))),
      // The key of the service itself is sent only to the service of this machine.
      take(isStore && isLocal ? from(yield* variable("KV_API_KEY"), "KV_API_KEY") : Option.none())
    ]
    const ofProfile = [
      ofOrigin(
        profile.url,
        take(from(Option.fromNullable(isStore ? profile.token : profile.sessionToken), profileName))
      ),
      ofOrigin(
        profile.url,
        read(from(Option.fromNullable(isStore ? profile.tokenFile : profile.sessionTokenFile), profileName))
      )
    ]
    return [
      read(from(given.tokenFile, "--token-file")),
      ...(Option.isSome(given.profile) ? [...ofProfile, ...environment] : [...environment, ...ofProfile]),
      take(isStore && isLocal ? from(Option.some(developmentKey), "the key of dev mode") : Option.none())
    ]
  })

/** Finds the address and the profile. A profile of `--profile` precedes the environment; any other follows it. */
const locate = (given: Given) =>
  Effect.gen(function* () {
    if (!(given.timeout > 0)) return yield* wrong("--timeout must be a positive number of seconds")
    const ofEnvironment = yield* variable("CAUSEWAY_PROFILE")
    const name = Option.orElse(given.profile, () => ofEnvironment)
    const profile = yield* Profile.load(name)
    const profileName = `the profile ${Option.getOrElse(name, () => "default")}`
    const urls = [
      from(given.url, "--url"),
      ...(Option.isSome(given.profile)
        ? [from(Option.fromNullable(profile.url), profileName), from(yield* variable("CAUSEWAY_URL"), "CAUSEWAY_URL")]
        : [from(yield* variable("CAUSEWAY_URL"), "CAUSEWAY_URL"), from(Option.fromNullable(profile.url), profileName)])
    ]
    const { source, value } = Option.getOrElse(Option.firstSomeOf(urls), () => ({ value: defaultUrl, source: "" }))
    return { url: yield* parseUrl(value, source), timeout: Duration.seconds(given.timeout), profile, profileName }
  })

/** The service for a request that needs no credential. */
export const withoutCredential = (given: Given): Effect.Effect<Connection, CommandFailed> =>
  Effect.map(locate(given), ({ timeout, url }) => ({
    url,
    kind: "store",
    token: Redacted.make(""),
    source: "",
    timeout
  }))

/** The service and the credential for a command. */
export const resolve = (given: Given, kind: Kind = "store"): Effect.Effect<Connection, CommandFailed> =>
  Effect.gen(function* () {
    const { profile, profileName, timeout, url } = yield* locate(given)
    const found = Option.firstSomeOf(yield* credentials(given, kind, profile, profileName, url))
    if (Option.isNone(found)) return { url, kind, token: Redacted.make(""), source: "", timeout }
    return { url, kind, token: yield* found.value.read, source: found.value.source, timeout }
  })

/** The service and the credential for a command of the store, and a client that preserves the text of values. */
export const openStore = (given: Given): Effect.Effect<Opened, CommandFailed> =>
  Effect.flatMap(resolve(given), connection => {
    const { timeout, token, url } = connection
    const client = Client.make({ baseUrl: url, token, timeout, json: ExactJson })
    return Effect.map(client, client => ({ client, connection }))
  })
