import { Effect, Either, Layer } from "effect"
import * as Sqlite from "../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** A new store in a separate directory. */
export const temporaryLayer = (writer: "thread" | "inline") =>
  Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer })))

/** Runs something on the store in a directory, opened and closed for it. */
export const using = <A, E, R>(directory: string, body: Effect.Effect<A, E, R>) =>
  Effect.provide(body, Sqlite.layer({ directory, writer: "inline" }))

/** Why the store in a directory is refused. */
export const refusal = (directory: string) =>
  Effect.map(
    Effect.either(Effect.scoped(Layer.build(Sqlite.layer({ directory, writer: "inline" })))),
    Either.match({ onLeft: error => error, onRight: () => undefined })
  )
