/** The limits of requests and values. */
import { Config, Context } from "effect"
import { MiB } from "./Bytes.ts"
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
  /**
   * The maximum number of concurrent lists without a page limit, and counts of long lists. Each of them has a snapshot.
   * A tenant may have three quarters of them.
   */
  readonly wholeLists: number
  /** The size of the store's write-ahead log above which lists without a page limit are aborted. */
  readonly walBytes: number
  /** Fragments that a WebSocket message may have: 512 bytes each on average, if it is as large as it may be. */
  readonly messageFragments: number
  /** Seconds that a WebSocket message may take from its first fragment to its end. */
  readonly messageSeconds: number
  /** The bytes of idempotency records. Above it the tenants with the most bytes lose their oldest records. */
  readonly idempotencyBytes: number
}

export const defaults: LimitsShape = {
  keyBytes: 1024,
  namespaceBytes: 512,
  valueBytes: MiB,
  actorBytes: 256,
  batchOperations: 1000,
  bodyBytes: 16 * MiB,
  jsonDepth: 256,
  wholeLists: 32,
  walBytes: 256 * MiB,
  messageFragments: 2048,
  messageSeconds: 60,
  idempotencyBytes: 128 * MiB
}

/** The current limits; the defaults, unless a layer provides others. */
export class Limits extends Context.Reference<Limits>()("causeway/Limits", {
  defaultValue: (): LimitsShape => defaults
}) {}

const limit = (name: keyof LimitsShape, variable: string, description: string, min: number, max: number) =>
  Setting.integer(variable, { description, default: defaults[name], min, max })

export const config: Config.Config<LimitsShape> = Config.all({
  keyBytes: limit("keyBytes", "LIMIT_KEY_BYTES", "Longest key, in bytes of UTF-8", 1, 8192),
  namespaceBytes: limit("namespaceBytes", "LIMIT_NAMESPACE_BYTES", "Longest namespace, in bytes of UTF-8", 1, 8192),
  valueBytes: limit("valueBytes", "LIMIT_VALUE_BYTES", "Largest value, in bytes of its JSON text", 1, 256 * MiB),
  actorBytes: limit("actorBytes", "LIMIT_ACTOR_BYTES", "Longest actor, in bytes of UTF-8", 1, 8192),
  batchOperations: limit("batchOperations", "LIMIT_BATCH_OPERATIONS", "Most operations in a batch", 1, 100_000),
  bodyBytes: limit("bodyBytes", "LIMIT_BODY_BYTES", "Largest request body, in bytes", 1, 512 * MiB),
  jsonDepth: limit("jsonDepth", "LIMIT_JSON_DEPTH", "Most levels of nesting in a value", 1, 1000),
  wholeLists: limit(
    "wholeLists",
    "LIMIT_WHOLE_LISTS",
    "Maximum number of concurrent reads of lists without a limit and counts of long lists; one tenant may have three quarters of them; further requests are answered 503",
    1,
    1000
  ),
  walBytes: limit(
    "walBytes",
    "LIMIT_WAL_BYTES",
    "Size of the write-ahead log, in bytes, above which lists without a limit are aborted",
    MiB,
    1024 * 1024 * MiB
  ),
  messageFragments: limit(
    "messageFragments",
    "LIMIT_MESSAGE_FRAGMENTS",
    "Most fragments of a WebSocket message; with more the connection is closed with 1008",
    1,
    16_384
  ),
  messageSeconds: limit(
    "messageSeconds",
    "LIMIT_MESSAGE_SECONDS",
    "Seconds that a WebSocket message may take to arrive; after that the connection is closed with 4011",
    1,
    3600
  ),
  idempotencyBytes: limit(
    "idempotencyBytes",
    "LIMIT_IDEMPOTENCY_BYTES",
    "Bytes of the records of writes with an Idempotency-Key; above it the tenants with the most bytes lose their oldest",
    MiB,
    1024 * 1024 * MiB
  )
})
