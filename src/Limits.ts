import { Config, Context } from "effect"
import * as Setting from "./Setting.ts"

/** The limits of the service. Bytes are of UTF-8; a value is measured as stored, without white space. */
export interface LimitsShape {
  readonly keyBytes: number
  readonly namespaceBytes: number
  readonly valueBytes: number
  readonly actorBytes: number
  readonly batchOperations: number
  readonly bodyBytes: number
  /** Levels of arrays and objects in a value. */
  readonly jsonDepth: number
  /** Concurrent lists without a page limit, each of which holds a snapshot. */
  readonly wholeLists: number
  /** Size of the store's write-ahead log above which lists without a page limit are aborted. */
  readonly walBytes: number
}

const MiB = 1024 * 1024

const defaults: LimitsShape = {
  keyBytes: 1024,
  namespaceBytes: 512,
  valueBytes: MiB,
  actorBytes: 256,
  batchOperations: 1000,
  bodyBytes: 16 * MiB,
  jsonDepth: 256,
  wholeLists: 32,
  walBytes: 256 * MiB
}

/** The current limits; the defaults, unless a layer provides others. */
export class Limits extends Context.Reference<Limits>()("causeway/Limits", {
  defaultValue: (): LimitsShape => defaults
}) {}

/** Each limit as a configuration variable. */
export const config: Config.Config<LimitsShape> = Config.all({
  keyBytes: Setting.integer("LIMIT_KEY_BYTES", {
    description: "Longest key, in bytes of UTF-8",
    default: defaults.keyBytes,
    min: 1,
    max: 8192
  }),
  namespaceBytes: Setting.integer("LIMIT_NAMESPACE_BYTES", {
    description: "Longest namespace, in bytes of UTF-8",
    default: defaults.namespaceBytes,
    min: 1,
    max: 8192
  }),
  valueBytes: Setting.integer("LIMIT_VALUE_BYTES", {
    description: "Largest value, in bytes of its JSON text",
    default: defaults.valueBytes,
    min: 1,
    max: 256 * MiB
  }),
  actorBytes: Setting.integer("LIMIT_ACTOR_BYTES", {
    description: "Longest actor, in bytes of UTF-8",
    default: defaults.actorBytes,
    min: 1,
    max: 8192
  }),
  batchOperations: Setting.integer("LIMIT_BATCH_OPERATIONS", {
    description: "Most operations in a batch",
    default: defaults.batchOperations,
    min: 1,
    max: 100_000
  }),
  bodyBytes: Setting.integer("LIMIT_BODY_BYTES", {
    description: "Largest request body, in bytes",
    default: defaults.bodyBytes,
    min: 1,
    max: 512 * MiB
  }),
  jsonDepth: Setting.integer("LIMIT_JSON_DEPTH", {
    description: "Most levels of nesting in a value",
    default: defaults.jsonDepth,
    min: 1,
    max: 1000
  }),
  wholeLists: Setting.integer("LIMIT_WHOLE_LISTS", {
    description: "Most lists without a limit that are read at a time; the next is told to come back",
    default: defaults.wholeLists,
    min: 1,
    max: 1000
  }),
  walBytes: Setting.integer("LIMIT_WAL_BYTES", {
    description: "Size of the write-ahead log, in bytes, above which lists without a limit are cut off",
    default: defaults.walBytes,
    min: MiB,
    max: 1024 * 1024 * MiB
  })
})
