import { execFile } from "node:child_process"
import { existsSync } from "node:fs"
import { copyFile, mkdtemp, rm, symlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Context, Effect, Layer } from "effect"

/** The service as users run it, compiled to JavaScript: it starts in half the time that its source takes. */
export class Program extends Context.Tag("causeway/test/Program")<
  Program,
  {
    /** The file to run with `node`. */
    readonly main: string
  }
>() {}

const root = fileURLToPath(new URL("../..", import.meta.url))

const compile = (directory: string) =>
  Effect.async<void, Error>(resume => {
    const main = join(directory, "dist", "main.js")
    const compiler = join(root, "node_modules", "typescript", "bin", "tsc")
    const project = join(root, "scripts", "tsconfig.build.json")
    const running = execFile(
      process.execPath,
      [compiler, "-p", project, "--outDir", join(directory, "dist")],
      { encoding: "utf8" },
      (error, stdout) => {
        // What does not type-check is for the type check to say; the compiler writes its output all the same.
        if (error === null || existsSync(main)) resume(Effect.void)
        else resume(Effect.fail(new Error(`The service cannot be compiled: ${stdout}`, { cause: error })))
      }
    )
    return Effect.sync(() => running.kill("SIGKILL"))
  })

/** Compiles into a directory that goes with the scope. */
export const layer: Layer.Layer<Program, Error> = Layer.scoped(
  Program,
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.promise(() => mkdtemp(join(tmpdir(), "causeway-program-"))),
      directory => Effect.promise(() => rm(directory, { recursive: true, force: true }))
    )
    yield* Effect.promise(() => copyFile(join(root, "package.json"), join(directory, "package.json")))
    yield* Effect.promise(() => symlink(join(root, "node_modules"), join(directory, "node_modules")))
    yield* compile(directory)
    return { main: join(directory, "dist", "main.js") }
  })
)
