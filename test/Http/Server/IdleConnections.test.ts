import { FastCheck as fc } from "effect"
import { describe, expect, it } from "vitest"
import { type Idle, IdleConnections, type Network } from "../../../src/Http/Server/Connections.ts"
import { times } from "../../Scale.ts"

class Connection implements Idle<Connection> {
  previous: Connection | undefined
  next: Connection | undefined
  isIdle = false

  constructor(readonly network: Network<Connection>) {}
}

/** The same by searching all connections. */
class Model {
  readonly connections: Array<{ readonly connection: Connection; readonly name: string; idleSince: number }> = []

  /** The candidates for the first: the longest idle ones of the networks with the most connections and an idle one. */
  first(): ReadonlySet<Connection> {
    const idle = this.connections.filter(({ connection }) => connection.isIdle)
    const countOf = (name: string) => this.connections.filter(one => one.name === name).length
    const most = Math.max(0, ...idle.map(({ name }) => countOf(name)))
    const largest = new Set(idle.filter(({ name }) => countOf(name) === most).map(({ name }) => name))
    const oldest = [...largest].map(name => {
      const own = idle.filter(one => one.name === name)
      return own.reduce((a, b) => (a.idleSince < b.idleSince ? a : b)).connection
    })
    return new Set(oldest)
  }
}

describe("idle connections", () => {
  it("equal those of a search, after any operations", () => {
    const step = fc.record({
      kind: fc.constantFrom("open", "open", "busy", "idle", "close", "close first" as const),
      name: fc.constantFrom("a", "b", "c", "d", "e", "f"),
      pick: fc.nat()
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), steps => {
        const idle = new IdleConnections<Connection>()
        const model = new Model()
        let now = 0
        const close = (connection: Connection) => {
          idle.leave(connection)
          const index = model.connections.findIndex(one => one.connection === connection)
          model.connections.splice(index, 1)
        }
        for (const { kind, name, pick } of steps) {
          const picked = model.connections[pick % Math.max(1, model.connections.length)]
          if (kind === "open") {
            const connection = new Connection(idle.join(name))
            idle.add(connection)
            model.connections.push({ connection, name, idleSince: ++now })
          } else if (kind === "close first") {
            const first = idle.first()
            if (first !== undefined) close(first)
          } else if (picked === undefined) continue
          else if (kind === "close") close(picked.connection)
          else if (kind === "busy") idle.delete(picked.connection)
          else if (!picked.connection.isIdle) {
            idle.add(picked.connection)
            picked.idleSince = ++now
          }
          const first = idle.first()
          const expected = model.first()
          expect(first === undefined ? expected.size === 0 : expected.has(first)).toBe(true)
        }
      }),
      { numRuns: times(200) }
    )
  })
})
