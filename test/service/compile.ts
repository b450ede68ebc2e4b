/**
 * Compiles the service, and the test programs that run in processes of their own, once for all test files.
 *
 * `src` has the modules as `npm run build` makes them; tests import them from there (`scripts/tests/configuration.ts`).
 * `programs` has the service and the test programs in one piece each: they start in half the time, as most of it goes
 * into finding and linking modules. Threads of databases are in one piece everywhere.
 */
import { execFile } from "node:child_process"
import { copyFile, mkdir, symlink, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { build, type Plugin } from "esbuild"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    /** The directory of the compiled project. */
    readonly compiled: string
  }
}

const root = fileURLToPath(new URL("../..", import.meta.url))

const compile = (directory: string): Promise<void> =>
  new Promise((resolve, reject) => {
    const compiler = join(root, "node_modules", "typescript", "bin", "tsc")
    const project = fileURLToPath(new URL("tsconfig.json", import.meta.url))
    execFile(
      process.execPath,
      [compiler, "-p", project, "--outDir", join(directory, "src")],
      { encoding: "utf8" },
      (error, stdout) => {
        // It does not check types, which `npm run check` does.
        if (error === null) resolve()
        else reject(new Error(`The service cannot be compiled: ${stdout}`, { cause: error }))
      }
    )
  })

/**
 * Takes the modules of Node without importing them. An import reads all members of a module, and those of `node:http`
 * lead to Node's own client, whose loading takes a tenth of the time in which the service starts.
 */
const modulesOfNode: Plugin = {
  name: "modules of Node",
  setup: ({ onLoad, onResolve }) => {
    onResolve({ filter: /^node:/ }, ({ path }) => ({ path, namespace: "node" }))
    onLoad({ filter: /./, namespace: "node" }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(path)})`
    }))
  }
}

const bundle = (directory: string) =>
  build({
    absWorkingDir: root,
    entryPoints: {
      "programs/main": "src/main.ts",
      "programs/faults": "test/faults/Program.ts",
      "programs/hostile": "test/hostile/Program.ts",
      "programs/host": "test/Http/Platform/Program.ts",
      // Where the code that starts it looks for it: one folder above.
      WriterThread: "src/Storage/Sqlite/WriterThread.ts",
      CopyThread: "src/Storage/Sqlite/CopyThread.ts"
    },
    outdir: directory,
    chunkNames: "programs/[name]-[hash]",
    bundle: true,
    splitting: true,
    plugins: [modulesOfNode],
    // As in the build of the package.
    alias: Object.fromEntries(["yaml", "toml", "ini"].map(name => [name, "./scripts/absent.ts"])),
    platform: "node",
    format: "esm",
    target: "node22",
    external: ["better-sqlite3", "pg", "@effect/opentelemetry", "@opentelemetry/*"],
    // Some packages are CommonJS.
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
    logLevel: "warning"
  })

/** Runs before all tests. */
export default async ({ config }: TestProject): Promise<void> => {
  const directory = config.provide.compiled!
  await mkdir(directory)
  await copyFile(join(root, "package.json"), join(directory, "package.json"))
  await symlink(join(root, "node_modules"), join(directory, "node_modules"))
  await Promise.all([compile(directory), bundle(directory)])
  for (const name of ["WriterThread.js", "CopyThread.js"]) {
    await writeFile(join(directory, "src/Storage/Sqlite", name), `import "../../../${name}"\n`)
  }
}
