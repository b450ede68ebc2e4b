/** A node of the service as a process, which tests kill, restart, and pause. */
import { Effect } from "effect"
import * as Service from "../service/Service.ts"
import type { Node } from "./Client.ts"

export interface ServiceNode extends Node {
  /**
   * Ends the process, at once unless it is by another signal, does something, and starts another process on the same
   * store, at another address. Returns how the first one ended.
   */
  readonly restart: <R = never>(
    between?: Effect.Effect<void, never, R>,
    signal?: NodeJS.Signals
  ) => Effect.Effect<Service.Ended, Service.NotServing, R>
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
      restart: (between = Effect.void, signal = "SIGKILL") =>
        Effect.gen(function* () {
          // Clients find out by themselves that it is gone.
          const ended = yield* service.end(signal)
          url = undefined
          yield* between
          service = yield* launch
          url = service.url
          return ended
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
