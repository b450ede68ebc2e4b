import { existsSync } from "node:fs"
import { availableParallelism, tmpdir } from "node:os"
import { dirname, join, relative, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { configDefaults, defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"

const root = fileURLToPath(new URL("..", import.meta.url))

/** Where `test/service/compile.ts` puts what it compiles. */
const compiled = join(tmpdir(), `causeway-program-${process.pid}`)

/** The files that take longest. They begin first, so that at the end no process works alone. */
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
 * Tests that run where they are asked for, each kind with a command of its own: to build and install the package takes as
 * long as a fifth of all others, and browsers take as long as a tenth.
 */
const apart = [
  { argument: "test/Package", files: "test/Package/**" },
  { argument: ".browser", files: "**/*.browser.test.ts" }
].filter(({ argument }) => !process.argv.some(given => given.includes(argument)))

const processes = Math.min(2 * availableParallelism(), 8)

// Every suite holds real sockets and files of its own, so files may run side by side: twice as many as there are
// processors, as tests wait for disks and other processes half of the time. Files that run one after the other share a
// process and the modules that it has loaded: to load Effect takes longer than most files run.
export default defineConfig({
  root,
  plugins: [
    {
      name: "compiled sources",
      enforce: "pre",
      // Node loads them itself: in modules that vitest loads each use of an import calls a function, which makes loops
      // over bytes many times as slow.
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
    // These find what hangs; how long a test takes is up to the machine.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    pool: "forks",
    // A process that ends before the others, for want of files, would end the whole run ("Terminating worker thread").
    poolOptions: { forks: { maxForks: processes, minForks: processes, isolate: false } }
  }
})
