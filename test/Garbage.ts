/** What stays in memory, such as sockets that have ended. */
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import type { Socket } from "node:net"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Effect, type Scope } from "effect"

setFlagsFromString("--expose-gc")

/** Collects garbage at once. */
export const collect = runInNewContext("gc") as () => void

/** Finds the sockets that are made until the scope closes, and have a port on either side, without keeping them. */
export const socketsMade = (
  side: "client" | "server"
): Effect.Effect<(port: number) => ReadonlyArray<WeakRef<Socket>>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const made: Array<WeakRef<Socket>> = []
    const onSocket = (message: unknown): void => {
      made.push(new WeakRef((message as { readonly socket: Socket }).socket))
    }
    const name = `net.${side}.socket`
    yield* Effect.acquireRelease(
      Effect.sync(() => subscribe(name, onSocket)),
      () => Effect.sync(() => unsubscribe(name, onSocket))
    )
    return port =>
      made.filter(ref => {
        const socket = ref.deref()
        return socket?.localPort === port || socket?.remotePort === port
      })
  })

/** Waits until all of some sockets are collected. A weak reference that is read keeps its object until the turn ends. */
export const collected = (sockets: ReadonlyArray<WeakRef<Socket>>): Effect.Effect<void> =>
  Effect.promise(async () => {
    do {
      await new Promise(resolve => setImmediate(resolve))
      collect()
      await new Promise(resolve => setImmediate(resolve))
    } while (sockets.some(ref => ref.deref() !== undefined))
  })
