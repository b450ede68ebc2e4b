#!/usr/bin/env node
import "./Process/GarbageCollector.ts"
import * as YoungGeneration from "./Process/YoungGeneration.ts"

YoungGeneration.hold()
// What a module imports statically is loaded before any of it runs, and loading is what the young generation grows by.
const [{ runMain }, { main, teardown }, FiberRoots] = await Promise.all([
  import("@effect/platform-node/NodeRuntime"),
  import("./Cli.ts"),
  import("./Process/FiberRoots.ts")
])
FiberRoots.install()
runMain(main(process.argv.slice(2)), { disableErrorReporting: true, disablePrettyLogger: true, teardown })
