/** What the simulated agent can do in a turn. */
import { Duration, Effect } from "effect"
import { yieldToEventLoop } from "../base/EventLoop.ts"
import type { EventBody, Frame, Instance, Turn } from "./Instance.ts"

/** Events that are emitted before other fibers and sockets run. */
const burst = 32

/** What the simulated agent can do in a turn. Each action takes the given time, and waits for slow connections. */
export const make = (instance: Instance, turn: Turn, pace: Duration.Duration) => {
  const { workspace } = instance
  const { content, number, turnId } = turn
  let count = 0

  const act = <A>(action: Effect.Effect<A>): Effect.Effect<A> =>
    Effect.gen(function* () {
      const result = yield* action
      if (Duration.toMillis(pace) > 0) yield* Effect.sleep(pace)
      if (++count % burst === 0) yield* yieldToEventLoop
      yield* instance.awaitRoom
      return result
    })

  const run = (action: () => void): Effect.Effect<void> => act(Effect.sync(action))

  const emitFileEvent = (type: string, path: string, fields: object | undefined): void =>
    fields === undefined
      ? instance.emit({
          type: "error",
          turnId,
          code: "workspace",
          message: `${JSON.stringify(path)} was not changed: there is no such file, or no room for it`,
          retryable: false
        })
      : instance.emit({ type, turnId, ...fields })

  return {
    instanceId: instance.id,
    turnId,
    content,
    /** 1 for the first turn of an instance. */
    number,
    emit: (type: string, fields: Readonly<Record<string, unknown>> = {}) =>
      run(() => instance.emit({ ...fields, type })),
    /** Sends a frame that is not an event. */
    frame: (frame: Frame) => run(() => instance.emitFrame(frame)),
    /** Changes the workspace, and emits the file event or an error. */
    write: (path: string, content: string) =>
      run(() => {
        const written = path === "" ? undefined : workspace.write(path, content, instance.now())
        if (written === undefined) return emitFileEvent("", path, undefined)
        const { created, iteration, size, hash } = written
        return emitFileEvent(created ? "file.created" : "file.modified", path, { path, iteration, size, hash })
      }),
    delete: (path: string) =>
      run(() => emitFileEvent("file.deleted", path, workspace.delete(path) ? { path } : undefined)),
    rename: (from: string, to: string) =>
      run(() => {
        const renamed = to === "" ? undefined : workspace.rename(from, to, instance.now())
        emitFileEvent("file.renamed", from, renamed && { from, path: to, ...renamed })
      }),
    /** Emits a question or a request for approval, and waits for the client's answer. */
    ask: (requestId: string, event: EventBody): Effect.Effect<unknown> =>
      act(
        Effect.suspend(() => {
          const answer = instance.expect(turn, requestId)
          instance.emit(event)
          return answer
        })
      ),
    /** Closes the connections once all earlier events are sent. The turn continues. */
    disconnect: (code: number | undefined) =>
      act(
        Effect.map(instance.awaitSent, () => {
          for (const connection of [...instance.connections]) connection.close(code)
        })
      ),
    /** Ends the instance, as if by a request or as a failure. */
    finish: (end: "stopped" | "crashed", reason: string) => run(() => instance.finish(end, reason))
  }
}

export type Agent = ReturnType<typeof make>
