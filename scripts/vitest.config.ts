import { defineConfig } from "vitest/config"

// Every suite holds real sockets and files of its own, so files may run side by side.
export default defineConfig({
  root: new URL("..", import.meta.url).pathname,
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/service/compile.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: "forks",
    poolOptions: { forks: { maxForks: 2 } }
  }
})
