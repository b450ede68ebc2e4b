/** A directory for the PostgreSQL clusters of a test run. */
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    readonly clusters: string
  }
}

/** Runs before all tests; the function that it returns runs after them. */
export default async ({ provide }: TestProject): Promise<() => Promise<void>> => {
  const directory = await mkdtemp(join(tmpdir(), "causeway-clusters-"))
  provide("clusters", directory)
  return () => rm(directory, { recursive: true, force: true })
}
