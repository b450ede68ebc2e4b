/** Finds the address and the credential for a command, in options, the environment and the file of profiles. */

import { readFileSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, isAbsolute, join } from "node:path"
import { Config, Duration, Effect, Either, Option, ParseResult, Redacted, Schema } from "effect"
import { messageOf } from "../base/ErrorMessage.ts"
import * as ExactJson from "../base/Json/ExactJson.ts"
import * as Client from "../Client/Effect/Client.ts"
import { isLoopback } from "../Http/Origin.ts"
import { hasCode } from "../Storage/FileSystem.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import { flag, numberOption, text } from "./CommandOptions.ts"

/** The service of this machine. */
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

const tokenFileOf = (kind: Kind): string =>
  `File with the credential, or ${variables[kind].file}, or ${variables[kind].token} for the credential itself`

const descriptions = {
  url: `Address of the service, or CAUSEWAY_URL; default ${defaultUrl}`,
  profile: "Profile with address and credential, or CAUSEWAY_PROFILE; default the profile default",
  timeout: "How long an answer may take"
}

const defaultTimeout = 30

/** The usage of the options that connect. */
export const usage = "[--url address] [--token-file file] [--profile name] [--timeout seconds]"

export const helpLine = (kind: Kind): string =>
  `To connect: --url, --token-file (or ${variables[kind].file}), --profile and --timeout; see causeway connection.`

/** The kind of the credential of a command, by the help of its option `--token-file`. */
export const kindOf = (help: string): Kind | undefined =>
  (["store", "sessions"] as const).find(kind => help === tokenFileOf(kind))

const sources = [
  ["", "option", "environment", "profile"],
  ["address", "--url", "CAUSEWAY_URL", "url"],
  ["key of the store", "--token-file", Object.values(variables.store).join(", "), "token, tokenFile"],
  ["token of a user", "--token-file", Object.values(variables.sessions).join(", "), "sessionToken, sessionTokenFile"],
  ["profile", "--profile", "CAUSEWAY_PROFILE", ""]
]

const sourceWidths = [0, 1, 2].map(index => Math.max(...sources.map(row => row[index]?.length ?? 0)))

/** The help about connecting, which all commands share. */
export const page = `A command needs the address of a service and a credential. Each is the first of these that is given:

${sources.map(row => `  ${row.map((cell, index) => cell.padEnd(sourceWidths[index] ?? 0)).join("  ")}`.trimEnd()).join("\n")}

The commands of sessions and chat take the token of a user, the others the key of the store. A profile that --profile
names precedes the environment. A credential is sent only to the origin with which it is configured, and is never an
argument, because other users can see these. Its file must not be readable by others.

The address is ${defaultUrl} by default. A service on this machine then gets KV_API_KEY, or the key of dev mode.

Profiles are in ~/.config/causeway/profiles.json, or in the file CAUSEWAY_PROFILES:

  {
    "default": { "url": "${defaultUrl}" },
    "production": { "url": "https://kv.example.com", "tokenFile": "production.key" }
  }

--timeout is the number of seconds that an answer may take; default ${defaultTimeout}.`

const optionsOf = (kind: Kind) => ({
  url: text("url", descriptions.url, "address"),
  tokenFile: text("token-file", tokenFileOf(kind), "file"),
  profile: text("profile", descriptions.profile, "name"),
  timeout: numberOption("timeout", "seconds", descriptions.timeout, defaultTimeout),
  json: flag("json", "Print JSON; default in a pipe or a file")
})

/** The descriptions of the options of every command that connects, in its help. */
export const optionHelp: ReadonlySet<string> = new Set([
  descriptions.url,
  tokenFileOf("store"),
  tokenFileOf("sessions"),
  descriptions.profile,
  `${descriptions.timeout}; default ${defaultTimeout}`
])

/** The number of these options. */
export const connectingOptions = 4

/** The options of every command that calls a service. */
export const options = optionsOf("store")

/** The options of every command that calls the gateway of a service. */
export const sessionOptions = optionsOf("sessions")

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

interface Credential extends Candidate {
  readonly isFile?: boolean
  /** The address that is configured with it. It is sent only to that origin. */
  readonly configuredUrl?: string | undefined
}

const belongsTo = (url: string, { configuredUrl }: Credential): boolean =>
  configuredUrl === undefined || (URL.canParse(configuredUrl) && new URL(configuredUrl).origin === new URL(url).origin)

/** The first credential for `url`, in order of precedence. */
const credentialFor = (given: Given, kind: Kind, profile: Profile, profileName: string, url: string) =>
  Effect.gen(function* () {
    const isLocalStore = kind === "store" && isLoopback(new URL(url).hostname)
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
    const profile = yield* loadProfile(name)
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
    const token = yield* isFile ? readToken(text) : credentialOf(source, text)
    return { url, kind, token, source, timeout }
  })

/** The service and the credential for a command of the store, and a client that preserves the text of values. */
export const openStore = (given: Given): Effect.Effect<Opened, CommandFailed> =>
  Effect.flatMap(resolve(given), connection => {
    const { timeout, token, url } = connection
    const client = Client.make({ baseUrl: url, token, timeout, json: ExactJson })
    return Effect.map(client, client => ({ client, connection }))
  })

const optionalText = Schema.optionalWith(Schema.NonEmptyString, { exact: true })

const Profile = Schema.Struct({
  url: optionalText,
  /** The key of the store. */
  token: optionalText,
  tokenFile: optionalText,
  /** The token of sessions, a JSON Web Token. */
  sessionToken: optionalText,
  sessionTokenFile: optionalText
})

/** A service and its credentials. All members are optional. */
export interface Profile extends Schema.Schema.Type<typeof Profile> {}

const Profiles = Schema.Record({ key: Schema.String, value: Profile })

/** The permissions and the owner of a file, from `stat`. */
export interface Access {
  readonly mode: number
  readonly uid: number
}

/**
 * Why a file with secrets is not safe; `undefined` if it is. `uid` is that of the user. A file of root may be readable by
 * others: containers get their secrets in such files.
 */
export const problemOfAccess = (path: string, { mode, uid: owner }: Access, uid: number): string | undefined => {
  if (owner !== uid && owner !== 0) return `${path} belongs to another user`
  if ((mode & 0o022) !== 0) return `${path} can be written by others`
  if (owner !== uid) return undefined
  return (mode & 0o044) === 0 ? undefined : `${path} can be read by others`
}

/** The home directory. The system may not know the user, for example in a container. */
const home = (): string => Option.getOrElse(Option.liftThrowable(homedir)(), () => "/")

/** The path of the file: `CAUSEWAY_PROFILES`, or a file in the directory for configuration of the user. */
export const profilesPath: Effect.Effect<string> = Effect.gen(function* () {
  const given = yield* Config.option(Config.nonEmptyString("CAUSEWAY_PROFILES"))
  const configurations = yield* Config.option(Config.nonEmptyString("XDG_CONFIG_HOME"))
  return Option.getOrElse(given, () =>
    join(
      Option.getOrElse(configurations, () => join(home(), ".config")),
      "causeway",
      "profiles.json"
    )
  )
}).pipe(Effect.orDie)

/** Parses the file. */
export const parseProfiles = (
  path: string,
  content: string
): Either.Either<Readonly<Record<string, Profile>>, CommandFailed> =>
  Either.try({
    try: () => JSON.parse(content) as unknown,
    // The message of the error may quote a token.
    catch: () => wrong(`${path} is not JSON`)
  }).pipe(
    Either.flatMap(value =>
      Either.mapLeft(Schema.decodeUnknownEither(Profiles, { onExcessProperty: "error" })(value), error => {
        const [issue] = ParseResult.ArrayFormatter.formatErrorSync(error)
        const member = issue === undefined ? "" : issue.path.map(String).join(".")
        return wrong(
          `${path}: ${member === "" ? "it" : member} is not as expected`,
          'A profile is {"<name>": {"url", "tokenFile" or "token", "sessionTokenFile" or "sessionToken"}}, each of them text.'
        )
      })
    )
  )

/**
 * Reads a file with secrets; `undefined` if it does not exist. With `isOptional`, a file in a directory that the user may
 * not enter, such as the home of another user, counts as absent too. Fails if others can read or write the file.
 */
const readPrivate = (path: string, isOptional: boolean): Effect.Effect<string | undefined, CommandFailed> => {
  const absent = ["ENOENT", "ENOTDIR", ...(isOptional ? ["EACCES"] : [])]
  const unreadable = (error: unknown) => wrong(`${path} cannot be read: ${messageOf(error)}`)
  const access = Effect.try({ try: () => statSync(path), catch: error => error }).pipe(
    Effect.catchAll(error => (hasCode(error, ...absent) ? Effect.succeed(undefined) : Effect.fail(unreadable(error))))
  )
  return Effect.flatMap(access, found => {
    if (found === undefined) return Effect.succeed(undefined)
    const uid = process.geteuid?.() ?? -1
    const problem = problemOfAccess(path, found, uid)
    if (problem === undefined) return Effect.try({ try: () => readFileSync(path, "utf8"), catch: unreadable })
    const advice = found.uid === uid ? `Do this: chmod 600 '${path}'` : "Use a file that belongs to you."
    return Effect.fail(wrong(problem, `It may contain credentials. ${advice}`))
  })
}

const credential = /^[\x21-\x7e]+$/

/** A credential from a text, without white space around it. */
export const credentialOf = (source: string, text: string): Either.Either<Redacted.Redacted, CommandFailed> =>
  credential.test(text.trim())
    ? Either.right(Redacted.make(text.trim()))
    : Either.left(wrong(`${source} is not a credential: it must be visible ASCII without blanks`))

/** Reads a credential from a file. */
export const readToken = (path: string): Effect.Effect<Redacted.Redacted, CommandFailed> =>
  Effect.flatMap(readPrivate(path, false), content =>
    content === undefined
      ? Effect.fail(wrong(`There is no file ${path}`, "Its only line must be the credential."))
      : credentialOf(path, content)
  )

/** The profile with a name. Without a name it is `default`, which may be absent. */
export const loadProfile = (name: Option.Option<string>): Effect.Effect<Profile, CommandFailed> =>
  Effect.gen(function* () {
    const file = yield* profilesPath
    const content = yield* readPrivate(file, Option.isNone(name))
    const profiles = content === undefined ? {} : yield* parseProfiles(file, content)
    const wanted = Option.getOrElse(name, () => "default")
    const found = Object.hasOwn(profiles, wanted) ? profiles[wanted] : undefined
    if (found === undefined) {
      if (Option.isNone(name)) return {}
      const names = Object.keys(profiles).join(", ")
      return yield* wrong(
        `There is no profile ${JSON.stringify(wanted)} in ${file}`,
        names === "" ? "There are none; docs/use/cli.md shows the file." : `There are ${names}.`
      )
    }
    const resolved = (path: string | undefined) =>
      path === undefined || isAbsolute(path) ? path : join(dirname(file), path)
    const { sessionTokenFile, tokenFile, ...rest } = found
    return {
      ...rest,
      ...(tokenFile !== undefined && { tokenFile: resolved(tokenFile)! }),
      ...(sessionTokenFile !== undefined && { sessionTokenFile: resolved(sessionTokenFile)! })
    }
  })
