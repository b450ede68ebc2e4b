import { defineConfig } from "vitest/config"

// Every suite holds real sockets and files of its own, so files may run side by side. Files that run one after the
// other share a process and the modules that it has loaded: to load Effect takes longer than most files run.
export default defineConfig({
  root: new URL("..", import.meta.url).pathname,
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/service/compile.ts", "test/postgres/setup.ts"],
    setupFiles: ["test/setup.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: "forks",
    poolOptions: { forks: { maxForks: 2, isolate: false } }
  }
})
