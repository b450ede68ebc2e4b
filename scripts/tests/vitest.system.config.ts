/** The tests that only `npm run test:system` runs, and the long form of those that have one. */
import { defineConfig } from "vitest/config"
import { configuration, scaledTests, systemTests } from "./configuration.ts"

export default defineConfig(configuration({ include: [...systemTests, ...scaledTests()], exclude: [] }, 1))
