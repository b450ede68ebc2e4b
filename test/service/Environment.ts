import { Layer } from "effect"
import * as Client from "./Client.ts"
import * as Program from "./Program.ts"

/** The services that tests of the running service need. */
export const layer = Layer.mergeAll(Client.layer, Program.layer)
