#!/usr/bin/env node
import "./Process/GarbageCollector.ts"
import * as YoungGeneration from "./Process/YoungGeneration.ts"

YoungGeneration.hold()
// Dynamic imports, as static ones would be loaded before `hold` runs, and loading makes the young generation grow.
const [{ runMain }, { main, teardown }, FiberRoots] = await Promise.all([
  import("@effect/platform-node/NodeRuntime"),
  import("./Cli.ts"),
  import("./Process/FiberRoots.ts")
])
FiberRoots.install()
runMain(main(process.argv.slice(2)), { disableErrorReporting: true, disablePrettyLogger: true, teardown })
