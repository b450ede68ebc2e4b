/** A node of the service as a process, which tests kill, restart, and pause. */
import { Effect } from "effect"
import * as Service from "../service/Service.ts"
import type { Node } from "./Client.ts"

export interface ServiceNode extends Node {
  /** Ends the process at once, does something, and starts another process on the same store, at another address. */
  readonly restart: (between?: Effect.Effect<void>) => Effect.Effect<void, Service.NotServing>
  /** Stops the process for a time; it does not learn of it. */
  readonly pause: (milliseconds: number) => Effect.Effect<void>
}

export const start = (name: string, options: Service.Options) =>
  Effect.gen(function* () {
    const launch = yield* Effect.map(
      Effect.context<Effect.Effect.Context<ReturnType<typeof Service.start>>>(),
      context => Effect.provide(Service.start(options), context)
    )
    let service = yield* launch
    let url: string | undefined = service.url
    const node: ServiceNode = {
      name,
      url: () => url,
      restart: (between = Effect.void) =>
        Effect.gen(function* () {
          // Clients find out by themselves that it is gone.
          yield* service.end("SIGKILL")
          url = undefined
          yield* between
          service = yield* launch
          url = service.url
        }),
      pause: milliseconds =>
        Effect.acquireUseRelease(
          Effect.sync(() => service.signal("SIGSTOP")),
          () => Effect.sleep(milliseconds),
          () => Effect.sync(() => service.signal("SIGCONT"))
        )
    }
    return node
  })
