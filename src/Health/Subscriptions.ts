import { Context, Effect } from "effect"

/** How many subscriptions to sessions are active; none where there is no gateway. */
export class Subscriptions extends Context.Reference<Subscriptions>()("causeway/Health/Subscriptions", {
  defaultValue: (): { readonly count: Effect.Effect<number> } => ({ count: Effect.succeed(0) })
}) {}
