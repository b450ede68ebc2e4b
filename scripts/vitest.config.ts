import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { defineConfig } from "vitest/config"

/** Where `test/service/compile.ts` puts what it compiles. */
const compiled = join(tmpdir(), `causeway-program-${process.pid}`)

// Every suite holds real sockets and files of its own, so files may run side by side. Files that run one after the
// other share a process and the modules that it has loaded: to load Effect takes longer than most files run.
export default defineConfig({
  root: new URL("..", import.meta.url).pathname,
  plugins: [
    {
      name: "compiled writer threads",
      enforce: "pre",
      // From its source a thread takes five times as long to start.
      transform: (code, id) =>
        id.endsWith("/Database/WriterPort.ts")
          ? code.replace("../WriterThread.dev.cjs", pathToFileURL(join(compiled, "WriterThread.js")).href)
          : undefined
    }
  ],
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/service/compile.ts", "test/postgres/setup.ts"],
    provide: { compiled },
    setupFiles: ["test/setup.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: "forks",
    poolOptions: { forks: { maxForks: 2, isolate: false } }
  }
})
