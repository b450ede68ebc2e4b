/** The arguments of a script. Each can also be given by an environment variable. */
import { parseArgs } from "node:util"
import { type Config, type ConfigError, ConfigProvider, Effect, Schema } from "effect"
import * as Setting from "../src/base/Setting.ts"

/** Invalid arguments; the message names each of them. */
export class WrongArguments extends Schema.TaggedError<WrongArguments>()("WrongArguments", {
  problems: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return [...this.problems, "--help lists all arguments."].join("\n")
  }
}

/** The variable of each argument. */
type Variables = Readonly<Record<string, string>>

/** The lines of `--help` about the arguments; `shown` may replace how a default is shown. */
export const describe = (
  variables: Variables,
  shown: (value: string | undefined) => string | undefined = value => value
): ReadonlyArray<string> => [
  ...Object.entries(variables).flatMap(([name, variable]) => {
    const setting = Setting.all().find(({ name }) => name === variable)
    return [
      `  --${name.padEnd(14)}${setting?.description}`,
      `${"".padEnd(18)}or ${variable}; default ${shown(setting?.default)}`
    ]
  }),
  `  ${"--help".padEnd(16)}Prints this text`
]

/** The messages of a configuration error. A given argument is named as such, any other by its variable. */
const problemsOf = (
  error: ConfigError.ConfigError,
  variables: Variables,
  given: ReadonlySet<string>
): ReadonlyArray<string> => {
  if (error._op === "And" || error._op === "Or") {
    return [...problemsOf(error.left, variables, given), ...problemsOf(error.right, variables, given)]
  }
  const variable = error.path.join("_")
  const name = Object.entries(variables).find(([name, of]) => of === variable && given.has(name))?.[0]
  return [`${name === undefined ? variable : `--${name}`}: ${error.message}`]
}

const text = { type: "string" } as const

const parse = (variables: Variables, args: ReadonlyArray<string>) =>
  Effect.try({
    try: (): Readonly<Record<string, string | boolean | undefined>> =>
      parseArgs({
        args: [...args],
        strict: true,
        options: {
          ...Object.fromEntries(Object.keys(variables).map(name => [name, text])),
          help: { type: "boolean", short: "h" }
        }
      }).values,
    catch: error => new WrongArguments({ problems: [error instanceof Error ? error.message : String(error)] })
  })

const isSet = (entry: readonly [string, unknown]): entry is readonly [string, string] =>
  typeof entry[1] === "string" && entry[1].trim() !== ""

/** Reads the arguments, and the environment for those that are not given. Returns `"help"` for `--help`. */
export const read = <A>(
  variables: Variables,
  config: Config.Config<A>,
  args: ReadonlyArray<string>,
  environment: Readonly<Record<string, string | undefined>>
): Effect.Effect<A | "help", WrongArguments> =>
  Effect.gen(function* () {
    const { help, ...given } = yield* parse(variables, args)
    if (help === true) return "help"
    const byVariable = Object.entries(variables).map(([name, variable]) => [variable, given[name]] as const)
    const provider = ConfigProvider.fromMap(new Map([...Object.entries(environment), ...byVariable].filter(isSet)))
    return yield* Effect.mapError(
      provider.load(config),
      error => new WrongArguments({ problems: problemsOf(error, variables, new Set(Object.keys(given))) })
    )
  })
