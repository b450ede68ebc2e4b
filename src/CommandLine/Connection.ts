/** Finds the address and the credential for a command, in options, the environment and profiles. */
import { Config, Duration, Effect, Option, Redacted } from "effect"
import * as ExactJson from "../base/Json/ExactJson.ts"
import * as Client from "../Client/Effect/Client.ts"
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

/** A value that the user may have given. */
interface Candidate {
  readonly text: Option.Option<string>
  /** Where it is from, for messages. */
  readonly source: string
}

/** A credential, or the path of its file. */
interface Credential extends Candidate {
  readonly isFile?: boolean
  /** The address that is configured with it. It is sent only to that origin. */
  readonly configuredUrl?: string | undefined
}

const belongsTo = (url: string, { configuredUrl }: Credential): boolean =>
  configuredUrl === undefined || (URL.canParse(configuredUrl) && new URL(configuredUrl).origin === new URL(url).origin)

/** The first credential for `url`, in order of precedence. */
const credentialFor = (given: Given, kind: Kind, profile: Profile.Profile, profileName: string, url: string) =>
  Effect.gen(function* () {
    const isLocalStore = kind === "store" && loopback.test(new URL(url).hostname)
    const { file, token } = variables[kind]
    const configured = { configuredUrl: Option.getOrUndefined(yield* variable("CAUSEWAY_URL")) }
    const environment: ReadonlyArray<Credential> = [
      { text: yield* variable(token), source: token, ...configured },
      { text: yield* variable(file), source: file, isFile: true, ...configured },
      // The key of the service itself is sent only to the service of this machine.
      ...(isLocalStore ? [{ text: yield* variable("KV_API_KEY"), source: "KV_API_KEY" }] : [])
    ]
    const [text, path] =
      kind === "store" ? [profile.token, profile.tokenFile] : [profile.sessionToken, profile.sessionTokenFile]
    const common = { source: profileName, configuredUrl: profile.url }
    const ofProfile: ReadonlyArray<Credential> = [
      { text: Option.fromNullable(text), ...common },
      { text: Option.fromNullable(path), isFile: true, ...common }
    ]
    const all: ReadonlyArray<Credential> = [
      { text: given.tokenFile, source: "--token-file", isFile: true },
      ...(Option.isSome(given.profile) ? [...ofProfile, ...environment] : [...environment, ...ofProfile]),
      ...(isLocalStore ? [{ text: Option.some(developmentKey), source: "the key of dev mode" }] : [])
    ]
    return all.find(credential => Option.isSome(credential.text) && belongsTo(url, credential))
  })

/** Finds the address and the profile. A profile of `--profile` precedes the environment; any other follows it. */
const locate = (given: Given) =>
  Effect.gen(function* () {
    if (!(given.timeout > 0)) return yield* wrong("--timeout must be a positive number of seconds")
    const ofEnvironment = yield* variable("CAUSEWAY_PROFILE")
    const name = Option.orElse(given.profile, () => ofEnvironment)
    const profile = yield* Profile.load(name)
    const profileName = `the profile ${Option.getOrElse(name, () => "default")}`
    const environment: Candidate = { text: yield* variable("CAUSEWAY_URL"), source: "CAUSEWAY_URL" }
    const ofProfile: Candidate = { text: Option.fromNullable(profile.url), source: profileName }
    const urls = [
      { text: given.url, source: "--url" },
      ...(Option.isSome(given.profile) ? [ofProfile, environment] : [environment, ofProfile])
    ]
    const { source, text } = urls.find(({ text }) => Option.isSome(text)) ?? ofProfile
    const url = yield* parseUrl(
      Option.getOrElse(text, () => defaultUrl),
      source
    )
    return { url, timeout: Duration.seconds(given.timeout), profile, profileName }
  })

/** The service for a request that needs no credential. */
export const withoutCredential = (given: Given): Effect.Effect<Connection, CommandFailed> =>
  Effect.map(locate(given), ({ timeout, url }) => ({ url, kind: "store", ...noCredential, timeout }))

const noCredential = { token: Redacted.make(""), source: "" }

/** The service and the credential for a command. */
export const resolve = (given: Given, kind: Kind = "store"): Effect.Effect<Connection, CommandFailed> =>
  Effect.gen(function* () {
    const { profile, profileName, timeout, url } = yield* locate(given)
    const found = yield* credentialFor(given, kind, profile, profileName, url)
    if (found === undefined) return { url, kind, ...noCredential, timeout }
    const { isFile = false, source } = found
    const text = Option.getOrElse(found.text, () => "")
    const token = yield* isFile ? Profile.readToken(text) : Profile.credentialOf(source, text)
    return { url, kind, token, source, timeout }
  })

/** The service and the credential for a command of the store, and a client that preserves the text of values. */
export const openStore = (given: Given): Effect.Effect<Opened, CommandFailed> =>
  Effect.flatMap(resolve(given), connection => {
    const { timeout, token, url } = connection
    const client = Client.make({ baseUrl: url, token, timeout, json: ExactJson })
    return Effect.map(client, client => ({ client, connection }))
  })
