/** The store in the same process: its ports, the backends that implement them, and the texts that they store. */

export * as Json from "../base/Json/JsonText.ts"
export * as Limits from "../base/Limits.ts"
export * as SessionEvents from "../Gateway/SessionEvents.ts"
export {
  decode as decodeChange,
  type EncodedChange,
  encode as encodeChange,
  type StoredChange
} from "../Kv/Change.ts"
export * as ChangeLog from "../Kv/ChangeLog.ts"
export { decode as decodeEntry, type EncodedEntry, encode as encodeEntry, type StoredEntry } from "../Kv/Entry.ts"
export * as Store from "../Kv/Store.ts"
export * as Write from "../Kv/Write.ts"
export { type Backend, memory, type SqliteOptions, sqlite } from "../Storage/Backends.ts"
export * as Housekeeping from "../Storage/Housekeeping.ts"
