/** How vitest runs the tests of the project. */
import { existsSync, globSync, readFileSync } from "node:fs"
import { availableParallelism } from "node:os"
import { join, relative, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { configDefaults, type ViteUserConfig } from "vitest/config"
import * as Directory from "./Directory.ts"
import { SlowestFiles } from "./SlowestFiles.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** The output directory of `test/service/compile.ts`. */
const compiled = join(Directory.path, "program")

/** Only `npm run test:system` runs these. */
export const systemTests = ["test/**/*.system.test.ts", "test/**/*.browser.test.ts"]

/** What repeats its loops as often as `test/Scale.ts` says. */
export const scaledTests = (): ReadonlyArray<string> =>
  globSync("test/**/*.test.ts", { cwd: root }).filter(file =>
    /from "[./]+\/Scale\.ts"/.test(readFileSync(join(root, file), "utf8"))
  )

/** A directory for the reports of test runs in JSON, if they are wanted. */
const reports = process.env.TEST_REPORTS

type Json = ["json", { outputFile: string }]

const processes = Number(process.env.TEST_PROCESSES ?? Math.min(Math.ceil(2.5 * availableParallelism()), 12))

/**
 * The configuration for a set of files, and how often they repeat their loops, by default.
 *
 * Every suite uses its own sockets and files, so files may run concurrently: more than there are processors,
 * because tests wait for other processes and for time most of the time. Files that run one after the other share a process
 * and its loaded modules: loading Effect takes longer than most files run. A process takes the next file when it has
 * done one; vitest starts those that took longest in the last run first.
 */
export const configuration = (
  files: { readonly include: ReadonlyArray<string>; readonly exclude: ReadonlyArray<string> },
  scale: number
): ViteUserConfig => {
  Directory.create()
  process.env.TEST_SCALE ??= String(scale)
  // It detects tests that hang; the duration of a test depends on the machine.
  const limit = 600_000 * Math.max(1, Number(process.env.TEST_SCALE))
  return {
    root,
    plugins: [
      {
        name: "compiled sources",
        enforce: "pre",
        // Node loads them itself: in modules that vitest loads, each use of an import calls a function, which makes loops
        // over bytes many times slower.
        resolveId: (source, importer) => {
          if (importer === undefined || !source.startsWith(".")) return undefined
          const file = relative(root, resolve(importer, "..", source))
          if (!file.startsWith("src/")) return undefined
          const module = join(compiled, file.replace(/\.ts$/, ".js"))
          return existsSync(module) ? module : undefined
        }
      }
    ],
    test: {
      include: [...files.include],
      exclude: [...configDefaults.exclude, ...files.exclude],
      globalSetup: ["scripts/tests/Directory.ts", "test/service/compile.ts", "test/postgres/setup.ts"],
      provide: { compiled },
      server: { deps: { external: [/\/causeway-tests-\d+\/program\/src\//] } },
      setupFiles: ["test/setup.ts"],
      reporters: [
        "default",
        new SlowestFiles(),
        ...(reports === undefined
          ? []
          : [["json", { outputFile: join(reports, `${process.pid}.json`) }] satisfies Json])
      ],
      testTimeout: limit,
      hookTimeout: limit,
      pool: "forks",
      // A process that ends before the others, without files, would end the whole run ("Terminating worker thread").
      poolOptions: { forks: { maxForks: processes, minForks: processes, isolate: false } }
    }
  }
}
