/** A TCP proxy before a database, which can fail as networks do. */
import { connect, createServer, type Server, type Socket } from "node:net"
import { Effect, type Scope } from "effect"

/** What happens to the bytes of a connection. */
export type Mode =
  /** They pass. */
  | "open"
  /** Nothing passes, without a sign to either end. */
  | "black hole"
  /** Requests pass; with the first byte of an answer the connection is reset. */
  | "answers lost"
  /** The connection is reset with the first byte of a request. */
  | "requests lost"
  /** All passes, answers by at most 64 KiB every 40 ms. */
  | "slow"
  /** All passes, each request after 30 ms. */
  | "late requests"

export interface Proxy {
  /** The address of the database through the proxy. */
  readonly url: string
  /** Sets the mode of connections that send a text from now on, or anything; those that have another one keep it. */
  readonly set: (mode: Mode, text?: string) => void
  /** Leads new connections to another port. */
  readonly lead: (port: number) => void
  /** Closes all connections, and refuses new ones or not. */
  readonly cut: (refuse: boolean) => Promise<void>
  /** Fulfilled when a connection has been affected by its mode. */
  readonly affected: Promise<void>
  /** The number of connections so far. */
  readonly connections: () => number
}

const listen = (server: Server, port: number): Promise<number> =>
  new Promise((resolve, reject) => {
    server.once("error", reject).listen(port, "127.0.0.1", () => {
      const address = server.address()
      resolve(typeof address === "object" && address !== null ? address.port : 0)
    })
  })

/** A proxy before the database of an address, until the scope closes. */
export const make = (url: string): Effect.Effect<Proxy, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const target = new URL(url)
      let targetPort = Number(target.port)
      const sockets = new Set<Socket>()
      let mode: Mode = "open"
      let wanted = ""
      let refuses = false
      let connections = 0
      let onAffected = (): void => {}
      const affected = new Promise<void>(resolve => {
        onAffected = resolve
      })
      const server = createServer(client => {
        connections++
        if (refuses) {
          client.destroy()
          return
        }
        const database = connect(targetPort, target.hostname)
        // What has happened to a connection stays so.
        let own: Mode = "open"
        for (const socket of [client, database]) {
          socket.setNoDelay(true)
          sockets.add(socket)
          socket
            .on("error", () => undefined)
            .on("close", () => {
              sockets.delete(socket)
              client.destroy()
              database.destroy()
            })
        }
        client.on("data", chunk => {
          if (own === "open" && (wanted === "" || chunk.includes(wanted))) own = mode
          if (own === "late requests") setTimeout(() => database.write(chunk), 30)
          else if (own !== "black hole" && own !== "requests lost") database.write(chunk)
          else onAffected()
          if (own === "requests lost") client.resetAndDestroy()
        })
        database.on("data", chunk => {
          if (own === "open" && wanted === "") own = mode
          if (own === "open" || own === "slow" || own === "late requests") {
            client.write(chunk)
            if (own === "slow") {
              database.pause()
              setTimeout(() => database.resume(), 40)
            }
            return
          }
          onAffected()
          if (own === "answers lost") client.resetAndDestroy()
        })
      })
      const port = await listen(server, 0)
      const through = new URL(url)
      through.hostname = "127.0.0.1"
      through.port = String(port)
      const cut = async (refuse: boolean): Promise<void> => {
        refuses = refuse
        for (const socket of sockets) socket.destroy()
      }
      const set = (next: Mode, text = ""): void => {
        mode = next
        wanted = text
      }
      const lead = (port: number): void => {
        targetPort = port
      }
      return { proxy: { url: through.href, set, lead, cut, affected, connections: () => connections }, server }
    }),
    ({ proxy, server }) =>
      Effect.promise(async () => {
        server.close()
        await proxy.cut(true)
      })
  ).pipe(Effect.map(({ proxy }) => proxy))
