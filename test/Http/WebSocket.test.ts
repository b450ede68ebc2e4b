import { describe, expect, it } from "@effect/vitest"
import { Effect, Layer, Logger, Scope, TestClock } from "effect"
import * as DrainingSignal from "../../src/Http/DrainingSignal.ts"
import * as WebSocket from "../../src/Http/WebSocket.ts"
import { socketSettings } from "./Server/Fixture.ts"

const settings = { ...socketSettings, pingInterval: 1000 }

/** A connection that records calls, and fails if `failing` is set. */
const recorder = (failing: ReadonlyArray<string> = []) => {
  const calls: Array<string> = []
  const record = (call: string) => () => {
    calls.push(call)
    if (failing.includes(call)) throw new Error(`${call} of a handler failed`)
  }
  const connection: WebSocket.Connection = {
    isOpen: true,
    hasRoom: true,
    blockedSince: undefined,
    send: record("send"),
    sendFrame: record("sendFrame"),
    pause: record("pause"),
    resume: record("resume"),
    close: record("close"),
    terminate: record("terminate"),
    tick: record("tick")
  }
  return { calls, connection }
}

/** Logged messages go here. */
const logged: Array<string> = []
const logger = Logger.replace(
  Logger.defaultLogger,
  Logger.make(({ message }) => logged.push(String(message)))
)

describe("a set of connections", () => {
  it.effect("cuts those whose handlers fail, and serves the others", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const draining = yield* DrainingSignal.DrainingSignal
      const connections = yield* Scope.extend(WebSocket.connectionSet(settings), scope)
      const all = [recorder(), recorder(["tick"]), recorder(["close"]), recorder()]
      for (const { connection } of all) connections.add(connection)
      logged.length = 0
      yield* TestClock.adjust("1 second")
      expect(all.map(({ calls }) => calls)).toEqual([["tick"], ["tick", "terminate"], ["tick"], ["tick"]])
      expect(logged).toHaveLength(1)
      yield* draining.begin
      yield* TestClock.adjust(0)
      expect(all.map(({ calls }) => calls.slice(1))).toEqual([
        ["close"],
        ["terminate", "close"],
        ["close", "terminate"],
        ["close"]
      ])
      expect(logged).toHaveLength(2)
      connections.failed(all[0]!.connection, new Error("a message"))
      yield* TestClock.adjust(0)
      expect(all[0]!.calls.at(-1)).toBe("terminate")
      expect(logged).toHaveLength(3)
    }).pipe(Effect.provide(Layer.merge(DrainingSignal.layer, logger)))
  )
})
