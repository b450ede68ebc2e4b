/** The file of profiles: services with their credentials. */
import { readFileSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, isAbsolute, join } from "node:path"
import { Config, Effect, Either, Option, ParseResult, Redacted, Schema } from "effect"
import { messageOf } from "../base/ErrorMessage.ts"
import { hasCode } from "../Storage/FileSystem.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"

const text = Schema.optionalWith(Schema.NonEmptyString, { exact: true })

/** A profile in the file. */
const Profile = Schema.Struct({
  url: text,
  /** The key of the store. */
  token: text,
  tokenFile: text,
  /** The token of sessions, a JSON Web Token. */
  sessionToken: text,
  sessionTokenFile: text
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
    const resolved = (path: string | undefined) =>
      path === undefined || isAbsolute(path) ? path : join(dirname(file), path)
    const { sessionTokenFile, tokenFile, ...rest } = found
    return {
      ...rest,
      ...(tokenFile !== undefined && { tokenFile: resolved(tokenFile)! }),
      ...(sessionTokenFile !== undefined && { sessionTokenFile: resolved(sessionTokenFile)! })
    }
  })
