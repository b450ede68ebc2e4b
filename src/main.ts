#!/usr/bin/env node
/** Starts the service or a command. */
import * as NodeVersion from "./base/Process/NodeVersion.ts"

const args = process.argv.slice(2)
const isQuestion = args.some(argument => ["--help", "-h", "--version"].includes(argument))

// Before anything else is loaded: the native module of SQLite crashes an older Node.
const problem = NodeVersion.problem()
if (problem !== undefined && !isQuestion) {
  console.error(`causeway cannot start. ${problem}`)
  process.exit(1)
}

const YoungGeneration = await import("./base/Process/YoungGeneration.ts")
YoungGeneration.hold()
// Dynamic imports, because static ones would be loaded before `hold` runs, and loading makes the young generation grow.
// It is released when the service listens, or when a command starts.
const [{ runMain }, { load, main, teardown }] = await Promise.all([
  import("@effect/platform-node/NodeRuntime"),
  import("./app/Cli.ts")
])
await load(args)
runMain(main(args), { disableErrorReporting: true, disablePrettyLogger: true, teardown: teardown(args) })
