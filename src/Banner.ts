/**
 * The message that dev mode prints at startup: the address, and commands to paste into a shell.
 */
import type * as HttpServer from "@effect/platform/HttpServer"
import { version } from "./Version.ts"

/** The URL of the server for a client on this machine. */
export const baseUrl = (address: HttpServer.Address): string => {
  if (address._tag === "UnixAddress") return `http+unix://${encodeURIComponent(address.path)}`
  const { hostname, port } = address
  // The server reports every wildcard address as 0.0.0.0.
  const host = hostname === "0.0.0.0" ? "127.0.0.1" : hostname.includes(":") ? `[${hostname}]` : hostname
  return `http://${host}:${port}`
}

/** The message. `key` is put between double quotes of the shell. */
export const banner = (base: string, key: string): string => {
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
    ""
  ].join("\n")
}
