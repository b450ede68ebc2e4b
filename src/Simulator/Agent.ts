import { Deferred, Duration, Effect, Queue } from "effect"
import type { Action } from "./Action.ts"
import { yieldToEventLoop } from "./Answer.ts"
import type { Instance, Turn } from "./Instance.ts"
import * as Script from "./Script.ts"

/** Events that are emitted before other fibers and sockets run. */
const burst = 32

const workspaceError = (instance: Instance, turn: Turn, path: string): void =>
  instance.emit({
    type: "error",
    turnId: turn.turnId,
    code: "workspace",
    message: `Nothing was done to ${JSON.stringify(path)}: there is no such file, or no room for it`,
    retryable: false
  })

/** Changes a file and emits its event, or an error. */
const changeFile = (instance: Instance, turn: Turn, action: Extract<Action, { do: "write" | "delete" | "rename" }>) => {
  const { workspace } = instance
  const { turnId } = turn
  switch (action.do) {
    case "write": {
      const { path, content } = action
      const written = path === "" ? undefined : workspace.write(path, content, instance.now())
      if (written === undefined) return workspaceError(instance, turn, path)
      const { iteration, size, hash } = written
      return instance.emit({
        type: written.created ? "file.created" : "file.modified",
        turnId,
        path,
        iteration,
        size,
        hash
      })
    }
    case "delete":
      if (!workspace.delete(action.path)) return workspaceError(instance, turn, action.path)
      return instance.emit({ type: "file.deleted", turnId, path: action.path })
    case "rename": {
      const { from, to } = action
      const renamed = to === "" ? undefined : workspace.rename(from, to, instance.now())
      if (renamed === undefined) return workspaceError(instance, turn, from)
      const { iteration, size, hash } = renamed
      return instance.emit({ type: "file.renamed", turnId, from, path: to, iteration, size, hash })
    }
  }
}

/** Performs one action. The result goes to the script. */
const perform = (instance: Instance, turn: Turn, action: Action): Effect.Effect<unknown> => {
  switch (action.do) {
    case "emit":
      return Effect.sync(() => instance.emit(action.event))
    case "write":
    case "delete":
    case "rename":
      return Effect.sync(() => changeFile(instance, turn, action))
    case "ask":
      return Effect.suspend(() => {
        const answer = instance.expect(turn, action.requestId)
        instance.emit(action.event)
        return answer
      })
    case "frame":
      return Effect.sync(() => instance.emitFrame(action.frame))
    case "hang":
      return Effect.never
    case "disconnect":
      return Effect.map(instance.awaitSent, () => {
        for (const connection of [...instance.connections]) connection.close(action.code)
      })
    case "stop":
      return Effect.sync(() => instance.finish("stopped", action.reason))
    case "crash":
      return Effect.sync(() => instance.finish("crashed", action.reason))
  }
}

const playTurn = (instance: Instance, turn: Turn, pace: Duration.Duration): Effect.Effect<void> =>
  Effect.gen(function* () {
    const { turnId, content, number } = turn
    const script = Script.play({ turnId, content, number, instanceId: instance.id })
    let answer: unknown
    for (let count = 1; ; count++) {
      const action = script.next(answer)
      if (action.done) return
      answer = yield* perform(instance, turn, action.value)
      if (Duration.toMillis(pace) > 0) yield* Effect.sleep(pace)
      if (count % burst === 0) yield* yieldToEventLoop
      yield* instance.awaitRoom
    }
  })

/** Plays an instance's turns one after another, until it ends. */
export const run = (instance: Instance, pace: Duration.Duration): Effect.Effect<void> =>
  Effect.gen(function* () {
    for (;;) {
      const turn = yield* Queue.take(instance.waiting)
      if (!instance.isLive(turn)) continue
      yield* Effect.raceFirst(playTurn(instance, turn, pace), Deferred.await(turn.interrupted))
      instance.cancel(turn)
    }
  }).pipe(
    Effect.raceFirst(Effect.asVoid(instance.ended)),
    Effect.catchAllDefect(defect =>
      Effect.zipRight(
        Effect.logError("The simulated agent failed", defect),
        Effect.sync(() => instance.finish("crashed", "The simulator failed"))
      )
    )
  )
