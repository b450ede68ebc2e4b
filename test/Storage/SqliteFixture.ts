import { Effect, Layer } from "effect"
import * as Sqlite from "../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** A new store in a separate directory. */
export const temporaryLayer = (writer: "thread" | "inline") =>
  Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer })))
