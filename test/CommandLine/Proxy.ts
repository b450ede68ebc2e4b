/** A server between a command and the service. */
import { once } from "node:events"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, type Scope } from "effect"

/** What becomes of a request. */
export type Fate = "pass" | "hang" | "lose the answer" | "close" | "answer as another" | "bad gateway"

/** Passes requests on; `target` is the address at that time. */
export const proxy = (
  target: () => string,
  onRequest: (request: Http.IncomingMessage, body: string) => Fate | Promise<"pass">
): Effect.Effect<string, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const server = Http.createServer(async (request, response) => {
          const chunks: Array<Buffer> = []
          for await (const chunk of request) chunks.push(Buffer.from(chunk))
          const body = Buffer.concat(chunks)
          const fate = await onRequest(request, body.toString())
          if (fate === "hang") return
          if (fate === "close") {
            response.destroy()
            return
          }
          if (fate === "answer as another") {
            response.end("<html></html>")
            return
          }
          const { authorization = "", "idempotency-key": key } = request.headers
          const answer = await fetch(target() + request.url, {
            method: request.method ?? "GET",
            headers: {
              authorization,
              "content-type": "application/json",
              ...(typeof key === "string" && { "idempotency-key": key })
            },
            ...(body.length > 0 && { body })
          })
          if (fate === "lose the answer") {
            await answer.arrayBuffer()
            response.destroy()
            return
          }
          if (fate === "bad gateway") {
            response.writeHead(502, { "content-type": "text/html" }).end("<html>502</html>")
            return
          }
          const headers = ["kv-count", "kv-epoch", "kv-last-seq", "link"].flatMap(name => {
            const value = answer.headers.get(name)
            return value === null ? [] : [[name, value] as const]
          })
          response.writeHead(answer.status, { "content-type": "application/json", ...Object.fromEntries(headers) })
          response.end(await answer.text())
        }).listen(0, "127.0.0.1")
        await once(server, "listening")
        return server
      }),
      server =>
        Effect.sync(() => {
          server.closeAllConnections()
          server.close()
        })
    ),
    server => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  )
