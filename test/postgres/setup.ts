/** A directory for the PostgreSQL clusters of a test run, which its user can enter. */
import { mkdtemp } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    readonly clusters: string
  }
}

/** Runs before all tests. */
export default async ({ provide }: TestProject): Promise<void> => {
  provide("clusters", await mkdtemp(join(tmpdir(), "clusters-")))
}
