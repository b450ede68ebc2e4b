import * as FileSystem from "@effect/platform/FileSystem"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Effect, Layer } from "effect"
import * as Client from "./Client.ts"
import * as Program from "./Program.ts"

/** What tests of the running service need. */
export const layer = Layer.mergeAll(Client.layer, NodeFileSystem.layer, Program.layer)

/** A directory that is removed with the scope. */
export const temporaryDirectory = Effect.flatMap(FileSystem.FileSystem, files =>
  files.makeTempDirectoryScoped({ prefix: "causeway-process-" })
)
