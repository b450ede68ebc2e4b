#!/usr/bin/env node
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { main, teardown } from "./Cli.ts"

NodeRuntime.runMain(main(process.argv.slice(2)), { disableErrorReporting: true, disablePrettyLogger: true, teardown })
