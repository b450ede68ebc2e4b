import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Layer } from "effect"
import * as Sqlite from "../../src/Storage/Sqlite.ts"

/** A new directory that is removed with the scope. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-sqlite-"))),
  directory => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
)

/** A new store in a separate directory. */
export const temporaryLayer = (writer: "thread" | "inline") =>
  Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer })))
