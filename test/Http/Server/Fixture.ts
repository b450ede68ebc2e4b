/** Gates for one test each, and what tests do with their connections. */
import type { AddressInfo } from "node:net"
import { afterEach } from "vitest"
import type { Gate, Upgradable } from "../../../src/Http/Server/Gate.ts"

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
  return (gate.address() as AddressInfo).port
}

export const turn = () => new Promise<void>(resolve => setImmediate(resolve))

export const until = async (condition: () => boolean): Promise<void> => {
  while (!condition()) await turn()
}
