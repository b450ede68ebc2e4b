/** The faults that can be injected, and the rules by which requests have them. */
import { Effect, Random, Schema } from "effect"
import { Operation } from "./TrafficLog.ts"

const Count = Schema.Int.pipe(Schema.nonNegative())
const Positive = Schema.Int.pipe(Schema.positive())
/** At most a day, so that it fits a timer. */
const Millis = Schema.Number.pipe(Schema.between(0, 86_400_000))

/** Whether a WebSocket endpoint may send a code (RFC 6455, 7.4). */
export const isCloseCode = (code: number): boolean =>
  (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999)

/** A code that a WebSocket endpoint may send. */
const CloseCode = Schema.Int.pipe(
  Schema.filter(isCloseCode, { message: () => "A close code is 1000 to 1014, except 1004 to 1006, or 3000 to 4999" })
)

/** A failure of a request. A WebSocket's handshake is a request too. */
export const Fault = Schema.Union(
  /** The request is delayed by `millis` and up to `jitterMillis` more. */
  Schema.Struct({ kind: Schema.Literal("latency"), millis: Millis, jitterMillis: Schema.optional(Millis) }),
  /** The request is not handled and gets this status, with `Retry-After` if given. */
  Schema.Struct({
    kind: Schema.Literal("status"),
    status: Schema.Int.pipe(Schema.between(300, 599)),
    retryAfter: Schema.optional(Schema.Union(Schema.String, Count))
  }),
  /** The request is not handled and its connection is reset. */
  Schema.Struct({ kind: Schema.Literal("reset") }),
  /** The request is not handled and never answered. */
  Schema.Struct({ kind: Schema.Literal("hang") }),
  /** The request is handled, and the answer is not valid JSON, UTF-8 or events. */
  Schema.Struct({ kind: Schema.Literal("malformed") }),
  /**
   * The request is handled, but the answer ends after `bytes` of its body, or after as many events of a WebSocket, which
   * is closed with `code` or, without one, disconnected. At 0 the whole answer of an ordinary request is lost.
   */
  Schema.Struct({
    kind: Schema.Literal("drop"),
    after: Count,
    code: Schema.optional(CloseCode)
  }),
  /** The answer is sent in pieces of `bytes`, or by single events of a WebSocket, with a delay before each. */
  Schema.Struct({ kind: Schema.Literal("drip"), bytes: Positive, everyMillis: Millis })
)
export type Fault = typeof Fault.Type

/** A fault, the requests it applies to, its probability (`rate`), and the maximum number of times (`times`). */
export const Rule = Schema.Struct({
  operation: Schema.Union(Operation, Schema.Literal("*")),
  rate: Schema.optionalWith(Schema.Number.pipe(Schema.between(0, 1)), { default: () => 1 }),
  times: Schema.optional(Positive),
  fault: Fault
})
export type Rule = typeof Rule.Type

/** How an answer or the events of a WebSocket are sent. */
export interface Delivery {
  readonly malformed: boolean
  readonly drop: { readonly after: number; readonly code: number | undefined } | undefined
  readonly drip: { readonly bytes: number; readonly everyMillis: number } | undefined
}

/** The faults of one request. */
export interface Plan extends Delivery {
  readonly latencyMillis: number
  /** The fault that replaces the handling of the request. */
  readonly instead: Extract<Fault, { kind: "status" | "reset" | "hang" }> | undefined
}

export const noFaults: Plan = {
  latencyMillis: 0,
  instead: undefined,
  malformed: false,
  drop: undefined,
  drip: undefined
}

/**
 * Adds a fault to a plan. Latencies add up; of the other kinds the first one stays. `chance`, from 0 to 1, decides the
 * jitter.
 */
export const applyFault = (plan: Plan, fault: Fault, chance: number): Plan => {
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

interface Active {
  readonly id: number
  readonly rule: Rule
  /** Each rule has its own, so that it does not depend on requests of other rules. */
  readonly chance: Random.Random
  hits: number
}

export interface ActiveRule {
  readonly id: number
  readonly rule: Rule
  readonly hits: number
}

/** The active rules of faults, in the order in which they were added. */
export class FaultRules {
  private active: Array<Active> = []
  private lastId = 0

  constructor(private readonly seed: string | number) {}

  get rules(): ReadonlyArray<ActiveRule> {
    return this.active.map(({ id, rule, hits }) => ({ id, rule, hits }))
  }

  add(rule: Rule): number {
    const id = ++this.lastId
    this.active.push({ id, rule, chance: Random.make(`${this.seed}/${id}`), hits: 0 })
    return id
  }

  /** Removes a rule; `false` if there is none. */
  remove(id: number): boolean {
    const before = this.active.length
    this.active = this.active.filter(active => active.id !== id)
    return this.active.length < before
  }

  clear(): void {
    this.active = []
  }

  /** The faults of a request. A rule that has reached its `times` is removed. */
  plan(operation: Operation): Effect.Effect<Plan> {
    return Effect.gen(this, function* () {
      let plan = noFaults
      for (const active of this.active.slice()) {
        const { id, rule, chance } = active
        if (rule.operation !== operation && rule.operation !== "*") continue
        if (rule.rate < 1 && (yield* chance.next) >= rule.rate) continue
        active.hits++
        if (rule.times !== undefined && active.hits >= rule.times) this.remove(id)
        plan = applyFault(plan, rule.fault, yield* chance.next)
      }
      return plan
    })
  }
}
