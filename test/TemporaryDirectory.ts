/** Directories of tests. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"

/** A new directory that is removed with the scope, also if a process that was killed has left it a moment later. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-"))),
  directory => Effect.sync(() => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }))
)
