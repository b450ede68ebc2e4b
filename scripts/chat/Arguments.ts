import { Config, type Effect, Option, type Redacted } from "effect"
import { sessionIdChars } from "../../src/Gateway/Protocol/Limits.ts"
import * as Setting from "../../src/Setting.ts"
import * as CommandLine from "../CommandLine.ts"

/** The arguments of the client. */
export interface Arguments {
  readonly url: string
  readonly token: Option.Option<Redacted.Redacted>
  readonly session: Option.Option<string>
  readonly agentType: string
}

/** The environment variable of each argument. */
const variables = {
  url: "CHAT_URL",
  token: "CHAT_TOKEN",
  session: "CHAT_SESSION",
  agent: "CHAT_AGENT"
} as const

/** The address of the WebSocket; an address of the service is accepted too. */
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
    description: "Token that identifies you; others on this machine can see it if it is given as an argument",
    shown: "none, which is enough in dev mode"
  }),
  session: Setting.declare<Option.Option<string>>(
    variables.session,
    {
      description: "Session to continue",
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

/** The text of `--help`. */
export const help = (): string =>
  [
    "Talks with an agent through the gateway. Each line is sent to it, and its events are printed.",
    "",
    "Usage: npm run chat -- [options]",
    "",
    ...CommandLine.describe(variables),
    "",
    ":help lists the commands. Lines can also come from a file or a pipe: then each waits for the end of the turn",
    "before it, and the client ends after the last one.",
    "",
    "Exit status: 0 at the end, 1 after a failure, 2 for invalid arguments, 130 after Ctrl-C."
  ].join("\n")

/** Reads the arguments, and the environment for those that are not given. Returns `"help"` for `--help`. */
export const read = (
  args: ReadonlyArray<string>,
  environment: Readonly<Record<string, string | undefined>>
): Effect.Effect<Arguments | "help", CommandLine.WrongArguments> =>
  CommandLine.read(variables, config, args, environment)
