/** The tests of `npm test`. */
import { defineConfig } from "vitest/config"
import { configuration, systemTests } from "./configuration.ts"

export default defineConfig(configuration({ include: ["test/**/*.test.ts"], exclude: systemTests }, 0.25))
