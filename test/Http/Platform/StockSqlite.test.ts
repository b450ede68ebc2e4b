import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Layer } from "effect"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { stock } from "../../Harness.ts"
import { httpSuite } from "../../suites/HttpSuite.ts"

/** A directory that goes with the scope. */
const directory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "causeway-http-"))),
  path => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

httpSuite(stock, "sqlite", Layer.unwrapScoped(Effect.map(directory, path => Sqlite.layer({ directory: path }))))
