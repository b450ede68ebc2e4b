/** The file of profiles: services that a user works with, and where their credentials are. */
import { readFileSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, isAbsolute, join } from "node:path"
import { Config, Effect, Either, Option, ParseResult, Redacted, Schema } from "effect"
import { messageOf } from "../ErrorMessage.ts"
import { hasCode } from "../Storage/FileSystem.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"

const text = Schema.optionalWith(Schema.NonEmptyString, { exact: true })

/** A service, as the file has it. */
const Profile = Schema.Struct({
  url: text,
  /** The key of the store. */
  token: text,
  tokenFile: text,
  /** The token of sessions, a JSON Web Token. */
  sessionToken: text,
  sessionTokenFile: text
})

/** A service that a user works with. */
export interface Profile extends Schema.Schema.Type<typeof Profile> {}

const Profiles = Schema.Record({ key: Schema.String, value: Profile })

/** Who may read a file, and whose it is, as `stat` tells. */
export interface Access {
  readonly mode: number
  readonly uid: number
}

/**
 * Why a file of secrets is not safe; `undefined` where it is. `uid` is the user's. Who may read a file of root is root's
 * decision: containers get their secrets in such files, which others than their owner can read, and nobody can change.
 */
export const problemOfAccess = (path: string, { mode, uid: owner }: Access, uid: number): string | undefined => {
  if (owner !== uid && owner !== 0) return `${path} belongs to another user`
  if ((mode & 0o022) !== 0) return `${path} can be written by others`
  if (owner !== uid) return undefined
  return (mode & 0o044) === 0 ? undefined : `${path} can be read by others`
}

/** The user's directory. The system may not know the user, as in a container. */
const home = (): string => Option.getOrElse(Option.liftThrowable(homedir)(), () => "/")

/** Where the file is: what `CAUSEWAY_PROFILES` says, else in the user's directory of configurations. */
export const path: Effect.Effect<string> = Effect.gen(function* () {
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
export const parse = (path: string, content: string): Either.Either<Readonly<Record<string, Profile>>, CommandFailed> =>
  Either.try({
    try: () => JSON.parse(content) as unknown,
    // The message of the error may quote a token.
    catch: () => wrong(`${path} is not JSON`)
  }).pipe(
    Either.flatMap(value =>
      Either.mapLeft(Schema.decodeUnknownEither(Profiles, { onExcessProperty: "error" })(value), error => {
        const [issue] = ParseResult.ArrayFormatter.formatErrorSync(error)
        const place = issue === undefined ? "" : issue.path.map(String).join(".")
        return wrong(
          `${path}: ${place === "" ? "it" : place} is not as expected`,
          'A profile is {"<name>": {"url", "tokenFile" or "token", "sessionTokenFile" or "sessionToken"}}, each of them text.'
        )
      })
    )
  )

/**
 * Reads a file of secrets that nobody else can read; `undefined` where there is none. With `isOptional` there is none in a
 * directory that the user may not enter either, such as the home of another user.
 */
const readPrivate = (path: string, isOptional: boolean): Effect.Effect<string | undefined, CommandFailed> => {
  const absent = isOptional ? ["ENOENT", "ENOTDIR", "EACCES"] : ["ENOENT", "ENOTDIR"]
  const unreadable = (error: unknown) => wrong(`${path} cannot be read: ${messageOf(error)}`)
  const access = Effect.try({ try: () => statSync(path), catch: error => error }).pipe(
    Effect.catchAll(error =>
      absent.some(code => hasCode(error, code)) ? Effect.succeed(undefined) : Effect.fail(unreadable(error))
    )
  )
  return Effect.flatMap(access, found => {
    if (found === undefined) return Effect.succeed(undefined)
    const uid = process.geteuid?.() ?? -1
    const problem = problemOfAccess(path, found, uid)
    if (problem === undefined) return Effect.try({ try: () => readFileSync(path, "utf8"), catch: unreadable })
    const advice = found.uid === uid ? `Do this: chmod 600 '${path}'` : "Use a file of your own."
    return Effect.fail(wrong(problem, `It may hold credentials. ${advice}`))
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
      ? Effect.fail(wrong(`There is no file ${path}`, "It should have the credential as its only line."))
      : credentialOf(path, content)
  )

/** The profile of a name. Where none is named it may be missing, and is `default`. */
export const load = (name: Option.Option<string>): Effect.Effect<Profile, CommandFailed> =>
  Effect.gen(function* () {
    const file = yield* path
    const content = yield* readPrivate(file, Option.isNone(name))
    const profiles = content === undefined ? {} : yield* parse(file, content)
    const wanted = Option.getOrElse(name, () => "default")
    const found = Object.hasOwn(profiles, wanted) ? profiles[wanted] : undefined
    if (found === undefined) {
      if (Option.isNone(name)) return {}
      const names = Object.keys(profiles).join(", ")
      return yield* wrong(
        `There is no profile ${JSON.stringify(wanted)} in ${file}`,
        names === "" ? "There are none; docs/cli.md shows the file." : `There are ${names}.`
      )
    }
    const near = (path: string | undefined) =>
      path === undefined || isAbsolute(path) ? path : join(dirname(file), path)
    const { sessionTokenFile, tokenFile, ...rest } = found
    return {
      ...rest,
      ...(tokenFile !== undefined && { tokenFile: near(tokenFile)! }),
      ...(sessionTokenFile !== undefined && { sessionTokenFile: near(sessionTokenFile)! })
    }
  })
