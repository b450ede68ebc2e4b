/** The shop's use of the store in the same process, and its wrapper of it. */
import { Json, memory, Store } from "causewayd/store"
import { Effect, Layer, Metric, Option } from "effect"

/** A metric of the shop's own. */
const writes = Metric.counter("shop_writes_total", { incremental: true })

/** A store by whose wrapper every write goes: those of clients, of the gateway, and of the shop itself. */
export const layer = Layer.effect(
  Store.Store,
  Effect.map(Store.Store, store => ({
    ...store,
    commit: (write: Parameters<typeof store.commit>[0]) =>
      Effect.tap(store.commit({ ...write, actor: `shop:${write.actor}` }), () => Metric.increment(writes))
  }))
).pipe(Layer.provideMerge(memory))

/** The number of apples, if it was set. */
export const apples = Effect.map(Store.Store, store =>
  store.get("tenant:shop/stock", "apples").pipe(
    Effect.map(entry =>
      Option.match(entry, { onNone: () => null, onSome: ({ value }) => Number(Json.toUnknown(value)) })
    ),
    Effect.orDie
  )
)
