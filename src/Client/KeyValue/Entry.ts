/** Common parts of requests for one entry: its path, its version, and the answer with it. */
import type { Entry } from "../Model.ts"
import { type CallOptions, json, segment } from "../Requests.ts"

/** Options of a call with a precondition on the version. */
export interface VersionOptions extends CallOptions {
  /** The entry must be at this version. */
  readonly ifVersion?: number
}

/** The path of an entry. */
export const entryPath = (namespace: string, key: string) =>
  `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

/** The header that requires an entry to be at a version. */
export const matching = (ifVersion: number | undefined): Record<string, string> =>
  ifVersion === undefined ? {} : { "if-match": `"${ifVersion}"` }

/** Reads an entry from an answer. */
export const readEntry = json<Entry>(({ key, version }) => typeof key === "string" && Number.isSafeInteger(version))
