import { Schema } from "effect"
import { Operation } from "./Operation.ts"

const Count = Schema.Int.pipe(Schema.nonNegative())
const Positive = Schema.Int.pipe(Schema.positive())
/** At most a day, so that every wait fits a timer. */
const Millis = Schema.Number.pipe(Schema.between(0, 86_400_000))

/** Whether a WebSocket endpoint may send a code (RFC 6455, 7.4). */
export const isCloseCode = (code: number): boolean =>
  (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999)

/** A code that a WebSocket endpoint may send. */
export const CloseCode = Schema.Int.pipe(
  Schema.filter(isCloseCode, { message: () => "A close code is 1000 to 1014, but for 1004 to 1006, or 3000 to 4999" })
)

/** What can go wrong with a request. A WebSocket's handshake is a request too. */
export const Fault = Schema.Union(
  /** The request waits before it is looked at, by `millis` and up to `jitterMillis` more. */
  Schema.Struct({ kind: Schema.Literal("latency"), millis: Millis, jitterMillis: Schema.optional(Millis) }),
  /** The request is not carried out and gets this status, with `Retry-After` where given. */
  Schema.Struct({
    kind: Schema.Literal("status"),
    status: Schema.Int.pipe(Schema.between(300, 599)),
    retryAfter: Schema.optional(Schema.Union(Schema.String, Count))
  }),
  /** The request is not carried out and its connection is reset. */
  Schema.Struct({ kind: Schema.Literal("reset") }),
  /** The request is not carried out and nothing ever comes back. */
  Schema.Struct({ kind: Schema.Literal("hang") }),
  /** The request is carried out, and what comes back is no sound JSON, UTF-8 or event. */
  Schema.Struct({ kind: Schema.Literal("malformed") }),
  /**
   * The request is carried out, but the answer breaks off after so many bytes of its body, or so many events of a
   * WebSocket, which is then closed with `code` or, without one, is cut. At 0 an ordinary answer is lost whole.
   */
  Schema.Struct({
    kind: Schema.Literal("drop"),
    after: Count,
    code: Schema.optional(CloseCode)
  }),
  /** The answer comes in pieces of so many bytes, or one event of a WebSocket at a time, with a wait before each. */
  Schema.Struct({ kind: Schema.Literal("drip"), bytes: Positive, everyMillis: Millis })
)
export type Fault = typeof Fault.Type

/** A fault, the requests it concerns, how often of them (`rate`), and for how many hits in all (`times`). */
export const Rule = Schema.Struct({
  operation: Schema.Union(Operation, Schema.Literal("*")),
  rate: Schema.optionalWith(Schema.Number.pipe(Schema.between(0, 1)), { default: () => 1 }),
  times: Schema.optional(Positive),
  fault: Fault
})
export type Rule = typeof Rule.Type

/** How a stream or an answer is to be delivered. */
export interface Delivery {
  readonly malformed: boolean
  readonly drop: { readonly after: number; readonly code: number | undefined } | undefined
  readonly drip: { readonly bytes: number; readonly everyMillis: number } | undefined
}

/** What becomes of one request. */
export interface Plan extends Delivery {
  readonly latencyMillis: number
  /** What happens in place of carrying the request out. */
  readonly instead: Extract<Fault, { kind: "status" | "reset" | "hang" }> | undefined
}

/** A request that nothing happens to. */
export const sound: Plan = {
  latencyMillis: 0,
  instead: undefined,
  malformed: false,
  drop: undefined,
  drip: undefined
}

/**
 * Adds a fault to a plan: latencies add up, of the others the first of its sort stays. `chance`, from 0 to 1,
 * decides the jitter.
 */
export const strike = (plan: Plan, fault: Fault, chance: number): Plan => {
  switch (fault.kind) {
    case "latency":
      return { ...plan, latencyMillis: plan.latencyMillis + fault.millis + chance * (fault.jitterMillis ?? 0) }
    case "status":
    case "reset":
    case "hang":
      return { ...plan, instead: plan.instead ?? fault }
    case "malformed":
      return { ...plan, malformed: true }
    case "drop":
      return { ...plan, drop: plan.drop ?? { after: fault.after, code: fault.code } }
    case "drip":
      return { ...plan, drip: plan.drip ?? fault }
  }
}
