/** Gates for one test each, and what tests do with their connections. */
import { once } from "node:events"
import * as Net from "node:net"
import { afterEach } from "vitest"
import type { Gate, Upgradable } from "../../../src/Http/Server/Gate.ts"
import type * as WebSocket from "../../../src/Http/WebSocket.ts"

/** Settings of WebSockets whose time and limits do not matter. */
export const socketSettings: WebSocket.Settings = {
  messageBytes: 100,
  unsentBytes: 100,
  pingInterval: 1_000_000_000,
  pongTimeout: 1_000_000_000,
  slow: { code: 4008, reason: "" },
  goingAway: { code: 1001, reason: "" },
  drainInterval: 0
}

/** Called after the test. */
export const closing: Array<() => void> = []

afterEach(() => {
  for (const close of closing.splice(0)) close()
})

/** Opens a gate on a free port until the end of the test. Returns the port. */
export const listen = async (gate: Gate, upgradable?: Upgradable): Promise<number> => {
  gate.open(upgradable)
  await new Promise<void>(resolve => gate.listen(0, "127.0.0.1", resolve))
  closing.push(() => {
    gate.close()
    gate.cut()
  })
  return (gate.address() as Net.AddressInfo).port
}

export const turn = () => new Promise<void>(resolve => setImmediate(resolve))

export const until = async (condition: () => boolean): Promise<void> => {
  while (!condition()) await turn()
}

/** A client until the end of the test, and what it has received. */
export const connect = async (port: number, options: Partial<Net.NetConnectOpts> = {}) => {
  const socket = Net.connect({ port, host: "127.0.0.1", ...options })
  closing.push(() => socket.destroy())
  let received = ""
  socket.on("data", chunk => {
    received += chunk.toString("latin1")
  })
  socket.on("error", () => {})
  const closed = new Promise<void>(resolve => socket.once("close", () => resolve()))
  await once(socket, "connect")
  return { socket, closed, received: () => received, answered: () => until(() => received !== "") }
}

/** The bytes of a request without a body. */
export const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`
