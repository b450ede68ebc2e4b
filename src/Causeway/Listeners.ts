import { Context } from "effect"
import type * as Gate from "../Http/Server/Gate.ts"

/** An application for a server of `node:http` that somebody else has. */
export class Listeners extends Context.Tag("causeway/Listeners")<
  Listeners,
  Gate.Listeners & {
    /** Is called with each request; what it returns is called at the end of it. */
    readonly observe: Gate.Observe
  }
>() {}
