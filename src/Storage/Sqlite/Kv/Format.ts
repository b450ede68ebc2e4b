import type { Format } from "../Database/Format.ts"

/** The database of the key-value store; its application id is `CWKV`. */
export const format: Format = {
  name: "kv",
  applicationId: 0x43574b56,
  schemaVersion: 2,
  load: () => import("./Schema.ts")
}
