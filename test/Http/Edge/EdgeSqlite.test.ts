import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Layer } from "effect"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { httpSuite, rowSuite } from "../../suites/HttpSuite.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

/** A directory that goes with the scope. */
const directory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "causeway-http-"))),
  path => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

const store = Layer.unwrapScoped(Effect.map(directory, path => Sqlite.layer({ directory: path })))

httpSuite(quickEdge, "sqlite", store)
rowSuite(quickEdge, "sqlite", store)
rowSuite(edge, "sqlite", store)
