import { Effect } from "effect"
import { json } from "../Http/Reply.ts"
import { Store } from "../Kv/Store.ts"

/** 200 while the process runs. */
export const alive = Effect.succeed(json('{"ok":true}'))

/** Whether the store answers; 200 either way. */
export const ready = Effect.gen(function* () {
  const store = yield* Store
  const ok = yield* store.ready
  return json(`{"ok":${ok}}`)
})
