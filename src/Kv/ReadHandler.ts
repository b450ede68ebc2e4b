/**
 * The handler that reads several entries from one snapshot.
 */
import { type Context, Effect } from "effect"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import type { LimitsShape } from "../Limits.ts"
import type { EncodedEntry } from "./Entry.ts"
import * as Errors from "./Errors.ts"
import * as ListBody from "./ListBody.ts"
import { listHeaders } from "./ListHandler.ts"
import * as Operations from "./Operations.ts"
import type { ReadPayload } from "./Requests.ts"
import type { Store } from "./Store.ts"

interface ReadRequest {
  readonly payload: typeof ReadPayload.Type
  readonly incoming: Incoming
}

/** Represents an absent entry. */
const absent: EncodedEntry = { json: "null", key: "" }

/** Answers the entries in the order of the keys. The limit of their values is that of a request body. */
export const make = ({ limits, store }: { readonly limits: LimitsShape; readonly store: Context.Tag.Service<Store> }) =>
  Effect.fnUntraced(function* ({ incoming, payload: { keys, keysOnly } }: ReadRequest) {
    if (keys.length > limits.batchOperations) {
      return yield* Errors.tooLarge(`keys has ${keys.length} elements; the limit is ${limits.batchOperations}`)
    }
    for (const [index, address] of keys.entries()) {
      yield* Operations.address(address, incoming.identity, limits, `keys[${index}].`)
    }
    const { entries, ...position } = yield* Effect.catchTags(store.getMany(keys, limits.bodyBytes, keysOnly), {
      StoreUnavailable: Errors.unavailable,
      EntriesTooLarge: ({ limitBytes }) =>
        Effect.fail(
          Errors.tooLarge(
            `the values of keys have more than ${limitBytes} bytes, which is the limit; ask for fewer, or for keysOnly`
          )
        )
    })
    return Reply.json(ListBody.ofPage(entries.map(entry => entry ?? absent)), listHeaders(position))
  })
