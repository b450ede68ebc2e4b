#!/usr/bin/env node
import "./Runtime/Pretenuring.ts"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { main, teardown } from "./Cli.ts"
import * as FiberRoots from "./Runtime/FiberRoots.ts"

FiberRoots.install()
NodeRuntime.runMain(main(process.argv.slice(2)), { disableErrorReporting: true, disablePrettyLogger: true, teardown })
