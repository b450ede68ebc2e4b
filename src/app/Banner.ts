/**
 * The message that dev mode prints at startup: the address, commands to paste into a shell, and the pages.
 */
import type * as HttpServer from "@effect/platform/HttpServer"
import { Config, Effect, Option } from "effect"
import { version } from "../base/Version.ts"

/** The URL of the server for a client on this machine. */
export const baseUrl = (address: HttpServer.Address): string => {
  if (address._tag === "UnixAddress") return `http+unix://${encodeURIComponent(address.path)}`
  const { hostname, port } = address
  // The server reports every wildcard address as 0.0.0.0.
  const host = hostname === "0.0.0.0" ? "127.0.0.1" : hostname.includes(":") ? `[${hostname}]` : hostname
  return `http://${host}:${port}`
}

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)

/**
 * The command that runs `causeway`: from the sources of a checkout, by npx from the package, or from a file of it that
 * `--package` names.
 */
export const program: Effect.Effect<string> = Config.option(Config.nonEmptyString("npm_config_package")).pipe(
  Effect.orDie,
  Effect.map(
    Option.match({
      onNone: () => (import.meta.url.endsWith(".ts") ? "npm run --silent causeway --" : "npx causewayd"),
      // npm puts an empty line between several.
      onSome: packages =>
        ["npx --yes", ...packages.split("\n\n").map(name => `--package ${quoted(name)}`), "causeway"].join(" ")
    })
  )
)

/** The facts in the message. */
export interface Announced {
  /** The command that runs `causeway`; see {@link program}. */
  readonly program: string
  /** The URL of the service. */
  readonly base: string
  /** The key, as text between the double quotes of a shell. */
  readonly key: string
  /** Whether the console is served. */
  readonly hasConsole: boolean
  /** Whether the reference of the API is served. */
  readonly hasReference: boolean
}

/** The message. */
export const banner = ({ base, hasConsole, hasReference, key, program }: Announced): string => {
  const auth = `-H "Authorization: Bearer ${key}"`
  const entry = `'${base}/api/v1/kv/tenant%3Ademo%2Fnotes/hello'`
  return [
    "",
    `Causeway ${version}, dev mode, at ${base}`,
    "",
    "Set an entry, read it, follow the changes:",
    `  curl -X PUT ${entry} ${auth} -H 'Content-Type: application/json' -d '{"value":"world"}'`,
    `  curl ${entry} ${auth}`,
    `  curl '${base}/api/v1/changes?after=0' ${auth}`,
    "",
    "Talk with an agent:",
    `  ${program} chat --url ${base}`,
    "",
    ...(hasConsole ? [`Console, to sign in with the key ${key}:`, `  ${base}/console`, ""] : []),
    ...(hasReference ? ["Reference of the API:", `  ${base}/docs`, ""] : [])
  ].join("\n")
}
