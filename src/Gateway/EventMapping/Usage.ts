/** Platform usage events, which tell two things: what was spent, and how full the context window is. */
import { Option } from "effect"
import * as Lifecycle from "../Protocol/Events/Lifecycle.ts"
import { from, orElse, type Payload, type Rule, to } from "./Rule.ts"

const figures = to(Lifecycle.UsageUpdate, {
  inputTokens: from("promptTokens"),
  outputTokens: from("completionTokens"),
  costUsd: from("cost")
})

const envelope: ReadonlySet<string> = new Set(["type", "turnId"])

/** What was spent, where the platform says anything of it. */
const update: Rule = (payload, situation) =>
  Option.filter(figures(payload, situation), ({ events }) =>
    events.some(event => Object.keys(event).some(name => !envelope.has(name)))
  )

const measured = to(Lifecycle.UsageContext, {
  used: from("contextUsed", "context.used"),
  limit: from("contextLimit", "context.limit"),
  // Whatever the platform says is measured anew, so that it agrees with `used` and `limit`.
  percent: orElse(0)
})

/** Of a hundred, with two decimals. */
const percentOf = (used: number, limit: number): number => Math.round((used / limit) * 10_000) / 100

const context: Rule = (payload, situation) =>
  Option.map(measured(payload, situation), ({ events, isWhole }) => ({
    events: events.map(event =>
      event.type === "usage_context" ? { ...event, percent: percentOf(event.used, event.limit) } : event
    ),
    isWhole
  }))

const contextNames = ["used", "limit", "contextUsed", "contextLimit", "context"]

/** Whether the platform meant to tell of the context window. */
const saysContext = (payload: Payload): boolean =>
  contextNames.some(name => Object.hasOwn(payload, name) && payload[name] !== null)

/** What was spent and how full the context window is, or one of them. */
export const usage: Rule = (payload, situation) => {
  const spent = update(payload, situation)
  const full = context(payload, situation)
  if (Option.isNone(full)) {
    return Option.map(spent, ({ events, isWhole }) => ({ events, isWhole: isWhole && !saysContext(payload) }))
  }
  if (Option.isNone(spent)) return full
  return Option.some({
    events: [...spent.value.events, ...full.value.events],
    isWhole: spent.value.isWhole && full.value.isWhole
  })
}
