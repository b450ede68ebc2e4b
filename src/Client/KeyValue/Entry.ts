/**
 * What requests for one entry have in common: its path, its version, and the answer that has it.
 */
import type { Entry } from "../Model.ts"
import { type CallOptions, json, segment } from "../Requests.ts"

/** What a call that depends on the version of an entry takes. */
export interface VersionOptions extends CallOptions {
  /** The entry must be at this version. */
  readonly ifVersion?: number
}

export const entryPath = (namespace: string, key: string) =>
  `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

/** The header by which an entry must be at a version. */
export const matching = (ifVersion: number | undefined): Record<string, string> =>
  ifVersion === undefined ? {} : { "if-match": `"${ifVersion}"` }

export const readEntry = json<Entry>(({ key, version }) => typeof key === "string" && Number.isSafeInteger(version))
