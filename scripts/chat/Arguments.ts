import { parseArgs } from "node:util"
import { Config, type ConfigError, ConfigProvider, Effect, Option, type Redacted, Schema } from "effect"
import { sessionIdChars } from "../../src/Gateway/Protocol/Limits.ts"
import * as Setting from "../../src/Setting.ts"

/** What the client is told to do. */
export interface Arguments {
  readonly url: string
  readonly token: Option.Option<Redacted.Redacted>
  readonly session: Option.Option<string>
  readonly agentType: string
}

/** Each argument, and the variable that stands for it where it is not given. */
const variables = {
  url: "CHAT_URL",
  token: "CHAT_TOKEN",
  session: "CHAT_SESSION",
  agent: "CHAT_AGENT"
} as const

/** The WebSocket's address, also from that of the service. */
const parseUrl = (text: string): Option.Option<string> => {
  if (!URL.canParse(text)) return Option.none()
  const url = new URL(text)
  url.protocol = url.protocol.replace(/^http/, "ws")
  if ((url.protocol !== "ws:" && url.protocol !== "wss:") || url.hash !== "" || url.username !== "") {
    return Option.none()
  }
  if (url.pathname === "/") url.pathname = "/ws"
  return Option.some(url.href)
}

const sessionId = new RegExp(`^[A-Za-z0-9_-]{1,${sessionIdChars}}$`)

const config: Config.Config<Arguments> = Config.all({
  url: Setting.declare(
    variables.url,
    {
      description: "Address of the gateway",
      allowed: "an address such as ws://127.0.0.1:8080/ws",
      default: "ws://127.0.0.1:8080/ws",
      shown: "ws://127.0.0.1:8080/ws"
    },
    parseUrl
  ),
  token: Setting.optionalSecret(variables.token, {
    description: "Token that tells who you are; as an argument others on this machine can see it",
    shown: "none, which dev mode is content with"
  }),
  session: Setting.declare<Option.Option<string>>(
    variables.session,
    {
      description: "Session to go on with",
      allowed: "the id of a session",
      default: Option.none(),
      shown: "a new one"
    },
    text => (sessionId.test(text) ? Option.some(Option.some(text)) : Option.none())
  ),
  agentType: Setting.string(variables.agent, {
    description: "Type of the agent of a new session",
    default: "assistant"
  })
})

/** What `--help` prints. */
export const help = (): string => {
  const lines = Object.entries(variables).flatMap(([name, variable]) => {
    const setting = Setting.all().find(({ name }) => name === variable)
    return [
      `  --${name.padEnd(14)}${setting?.description}`,
      `${"".padEnd(18)}or ${variable}; default ${setting?.default}`
    ]
  })
  return [
    "Talks with an agent through the gateway: each line is sent to it, and what it does is printed as it happens.",
    "",
    "Usage: npm run chat -- [options]",
    "",
    ...lines,
    `  ${"--help".padEnd(16)}Says this`,
    "",
    ":help lists what can be asked of the client. Lines may also come from a file or a pipe: then each waits for the end",
    "of the turn before it, and the last one ends the client.",
    "",
    "It ends with 0 in the end, 1 when something failed, 2 for wrong arguments, 130 after Ctrl-C."
  ].join("\n")
}

/** The findings of a configuration error, by the argument's name where it was given. */
const problemsOf = (error: ConfigError.ConfigError, given: ReadonlySet<string>): ReadonlyArray<string> => {
  if (error._op === "And" || error._op === "Or") {
    return [...problemsOf(error.left, given), ...problemsOf(error.right, given)]
  }
  const variable = error.path.join("_")
  const name = Object.entries(variables).find(([name, of]) => of === variable && given.has(name))?.[0]
  return [`${name === undefined ? variable : `--${name}`}: ${error.message}`]
}

/** The arguments cannot be followed; the message names each that is wrong. */
export class WrongArguments extends Schema.TaggedError<WrongArguments>()("WrongArguments", {
  problems: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return [...this.problems, "--help lists all arguments."].join("\n")
  }
}

const text = { type: "string" } as const

const parse = (args: ReadonlyArray<string>) =>
  Effect.try({
    try: () =>
      parseArgs({
        args: [...args],
        strict: true,
        options: { help: { type: "boolean", short: "h" }, url: text, token: text, session: text, agent: text }
      }).values,
    catch: error => new WrongArguments({ problems: [error instanceof Error ? error.message : String(error)] })
  })

const isSet = (entry: readonly [string, string | undefined]): entry is readonly [string, string] =>
  entry[1] !== undefined && entry[1].trim() !== ""

/** Reads the arguments, and the environment for those that are not given; `"help"` where that is what is wanted. */
export const read = (
  args: ReadonlyArray<string>,
  environment: Readonly<Record<string, string | undefined>>
): Effect.Effect<Arguments | "help", WrongArguments> =>
  Effect.gen(function* () {
    const { help: wantsHelp, ...given } = yield* parse(args)
    if (wantsHelp === true) return "help"
    const byVariable = Object.entries(variables).map(([name, variable]): readonly [string, string | undefined] => [
      variable,
      given[name as keyof typeof variables]
    ])
    const provider = ConfigProvider.fromMap(new Map([...Object.entries(environment), ...byVariable].filter(isSet)))
    return yield* Effect.mapError(
      provider.load(config),
      error => new WrongArguments({ problems: problemsOf(error, new Set(Object.keys(given))) })
    )
  })
