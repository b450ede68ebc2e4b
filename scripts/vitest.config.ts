import { existsSync } from "node:fs"
import { availableParallelism, tmpdir } from "node:os"
import { dirname, join, relative, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { configDefaults, defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"

const root = fileURLToPath(new URL("..", import.meta.url))

/** The output directory of `test/service/compile.ts`. */
const compiled = join(tmpdir(), `causeway-program-${process.pid}`)

/** The slowest files. They start first, so that at the end no process runs alone. */
const longest = [
  "Package/Package",
  "Durability",
  "Storage/Sqlite",
  "ForwardedSessions",
  "Backup",
  "Storage/Postgres",
  "Http/Edge/Edge",
  "history/Postgres",
  "Http/Edge/EdgePostgres",
  "Http/Platform/StockSqlite",
  "SharedSessions",
  "Docs/Commands",
  "Storage/StoreCopy",
  "Shutdown",
  "NodeFailures",
  "FaultInjection",
  "CommandLine/Chat/Process",
  "Gateway/Survival",
  "Storage/Sqlite/Database/StuckLocks",
  "Storage/Sqlite/Faults",
  "Package/Standalone",
  "Hostile"
].map(name => `/test/${name}.test.ts`)

class LongestFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    const sorted = await super.sort(files)
    const first = longest.flatMap(name => sorted.filter(({ moduleId }) => moduleId.endsWith(name)))
    return [...first, ...sorted.filter(file => !first.includes(file))]
  }
}

/**
 * Tests that only their own commands run: building and installing the package takes a fifth of the time of all others,
 * and browsers take a tenth.
 */
const apart = [
  { argument: "test/Package", files: "test/Package/**" },
  { argument: ".browser", files: "**/*.browser.test.ts" }
].filter(({ argument }) => !process.argv.some(given => given.includes(argument)))

const processes = Math.min(2 * availableParallelism(), 8)

// Every suite uses its own sockets and files, so files may run concurrently: twice as many as there are processors,
// because tests wait for disks and other processes half of the time. Files that run one after the other share a process
// and its loaded modules: loading Effect takes longer than most files run.
export default defineConfig({
  root,
  plugins: [
    {
      name: "compiled sources",
      enforce: "pre",
      // Node loads them itself: in modules that vitest loads, each use of an import calls a function, which makes loops
      // over bytes many times slower.
      resolveId: (source, importer) => {
        if (importer === undefined || !source.startsWith(".")) return undefined
        const file = relative(root, resolve(dirname(importer), source))
        if (!file.startsWith("src/")) return undefined
        const module = join(compiled, file.replace(/\.ts$/, ".js"))
        return existsSync(module) ? module : undefined
      }
    }
  ],
  test: {
    include: ["test/**/*.test.ts"],
    exclude: [...configDefaults.exclude, ...apart.map(({ files }) => files)],
    globalSetup: ["test/service/compile.ts", "test/postgres/setup.ts"],
    provide: { compiled },
    server: { deps: { external: [/\/causeway-program-\d+\/src\//] } },
    setupFiles: ["test/setup.ts"],
    sequence: { sequencer: LongestFirst },
    // These detect tests that hang; the duration of a test depends on the machine.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    pool: "forks",
    // A process that ends before the others, without files, would end the whole run ("Terminating worker thread").
    poolOptions: { forks: { maxForks: processes, minForks: processes, isolate: false } }
  }
})
