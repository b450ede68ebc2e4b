/**
 * What dev mode greets with: where the service is, and lines to paste into a shell.
 */
import type * as HttpServer from "@effect/platform/HttpServer"
import { version } from "./Version.ts"

/** The address that a client on this machine reaches the server at. */
export const baseUrl = (address: HttpServer.Address): string => {
  if (address._tag === "UnixAddress") return `http+unix://${encodeURIComponent(address.path)}`
  const { hostname, port } = address
  // The server names every wildcard 0.0.0.0.
  const host = hostname === "0.0.0.0" ? "127.0.0.1" : hostname.includes(":") ? `[${hostname}]` : hostname
  return `http://${host}:${port}`
}

/** The greeting. `key` is the credential as a shell expands it within double quotes. */
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
