/** Stores in directories that are opened for a test, or refused. */
import { Effect, Either, Layer } from "effect"
import * as Sqlite from "../../../../../src/Storage/Sqlite.ts"

const inline = (directory: string) => Sqlite.layer({ directory, writer: "inline" })

/** Runs something on the store in a directory, opened and closed for it. */
export const using = <A, E, R>(directory: string, body: Effect.Effect<A, E, R>) =>
  Effect.provide(body, inline(directory))

/** Why a store is refused. */
export const refusal = (directory: string, layer = inline(directory)) =>
  Effect.map(Effect.either(Effect.scoped(Layer.build(layer))), outcome =>
    Either.match(outcome, { onLeft: error => error, onRight: () => undefined })
  )
