/**
 * A change feed as it is written by hand: fastify and SQLite, and a frame for each write, made once, to every WebSocket
 * of `ws`.
 */
import { join } from "node:path"
import { WebSocketServer } from "ws"
import { app, type EntryPath, entryPath, entrySchema, listen } from "./FastifyApp.ts"
import { open } from "./FastifyStore.ts"

const store = open(join(process.env.DATA_DIR ?? ".", "peer.db"))
const sockets = new WebSocketServer({
  server: app.server,
  path: "/api/v1/changes/ws",
  perMessageDeflate: false,
  maxPayload: 4096
})
sockets.on("connection", socket => {
  socket.on("error", () => {})
})

app.get("/", (_request, reply) => reply.send({}))

app.put<{ Params: EntryPath; Body: { value: unknown } }>(
  "/api/v1/kv/:namespace/:key",
  { schema: { params: entryPath, response: { 200: entrySchema } } },
  (request, reply) => {
    const { namespace, key } = request.params
    const entry = store.set(namespace, key, request.body.value, "api")
    const frame = Buffer.from(JSON.stringify({ type: "changes", changes: [{ op: "set", ...entry }] }))
    for (const socket of sockets.clients) socket.send(frame, { binary: false })
    return reply.header("etag", `"${entry.version}"`).send(entry)
  }
)

await listen()
