import { Effect, Random } from "effect"
import { type Plan, type Rule, sound, strike } from "./Fault.ts"
import type { Operation } from "./Operation.ts"

interface Active {
  readonly id: number
  readonly rule: Rule
  /** A rule has chance of its own, so that what it does never depends on requests that are not its own. */
  readonly chance: Random.Random
  hits: number
}

/** A rule with its id and how often it has struck. */
export interface ActiveRule {
  readonly id: number
  readonly rule: Rule
  readonly hits: number
}

/** The faults switched on at the moment, in the order in which they were. */
export class Faults {
  private active: Array<Active> = []
  private lastId = 0

  constructor(
    private readonly seed: string | number,
    private readonly limit: number
  ) {}

  get rules(): ReadonlyArray<ActiveRule> {
    return this.active.map(({ id, rule, hits }) => ({ id, rule, hits }))
  }

  /** Switches a rule on and returns its id, or `undefined` where there are too many. */
  add(rule: Rule): number | undefined {
    if (this.active.length >= this.limit) return undefined
    const id = ++this.lastId
    this.active.push({ id, rule, chance: Random.make(`${this.seed}/${id}`), hits: 0 })
    return id
  }

  /** Switches a rule off; `false` where it was not on. */
  remove(id: number): boolean {
    const before = this.active.length
    this.active = this.active.filter(active => active.id !== id)
    return this.active.length < before
  }

  clear(): void {
    this.active = []
  }

  /** Decides what becomes of a request. A rule that has struck for the last time is switched off. */
  plan(operation: Operation): Effect.Effect<Plan> {
    return Effect.gen(this, function* () {
      let plan = sound
      for (const active of this.active.slice()) {
        const { id, rule, chance } = active
        if (rule.operation !== operation && rule.operation !== "*") continue
        if (rule.rate < 1 && (yield* chance.next) >= rule.rate) continue
        active.hits++
        if (rule.times !== undefined && active.hits >= rule.times) this.remove(id)
        plan = strike(plan, rule.fault, yield* chance.next)
      }
      return plan
    })
  }
}
