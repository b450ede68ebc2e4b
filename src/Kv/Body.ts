/** The shapes of request bodies with values, which are kept as they were sent. */
import { Effect, Layer } from "effect"
import * as ObjectReader from "../base/Json/ObjectReader.ts"
import { Limits, type LimitsShape } from "../base/Limits.ts"
import type { HistoryBody, JsonBody, ObjectBody } from "../Http/Contract.ts"
import * as RequestBody from "../Http/RequestBody.ts"

const operation = ObjectReader.shape(
  {
    op: "scalar",
    namespace: "scalar",
    key: "scalar",
    value: "json",
    ttlMs: "scalar",
    expiresAt: "scalar",
    ifVersion: "scalar"
  },
  4,
  ([op, namespace, key, value]) => ({ op, namespace, key, value })
)

const address = ObjectReader.shape({ namespace: "scalar", key: "scalar" }, 2, ([namespace, key]) => ({
  namespace,
  key
}))

const body = ObjectReader.shape({
  value: "json",
  operations: operation,
  actor: "scalar",
  ttlMs: "scalar",
  expiresAt: "scalar",
  ifVersion: "scalar",
  keys: address
})

/** The bodies of a PUT, of a batch and of a read of several keys, within the limits. */
export const format = (limits: LimitsShape) => ({
  bytes: limits.bodyBytes,
  shape: body,
  limits: { depth: limits.jsonDepth, elements: limits.batchOperations, valueBytes: limits.valueBytes }
})

/** Reads the bodies of all groups: those of the key-value group with values that are kept as text, others as objects. */
export const layer: Layer.Layer<JsonBody | ObjectBody | HistoryBody | RequestBody.BodyFormat> = RequestBody.layer.pipe(
  Layer.merge(RequestBody.layerObject),
  Layer.provideMerge(Layer.effect(RequestBody.BodyFormat, Effect.map(Limits, format)))
)
