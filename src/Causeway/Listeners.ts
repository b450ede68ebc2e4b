import { Context } from "effect"
import type * as Gate from "../Http/Server/Gate.ts"

/** An application for a `node:http` server of the host. */
export class Listeners extends Context.Tag("causeway/Listeners")<
  Listeners,
  Gate.Listeners & {
    /** Called with each request; the function that it returns is called at the end of the request. */
    readonly observe: Gate.Observe
  }
>() {}
