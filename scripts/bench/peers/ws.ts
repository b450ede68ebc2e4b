/** `ws` alone: a posted body is sent to every connected WebSocket. */
import { createServer } from "node:http"
import { WebSocketServer } from "ws"

const server = createServer((request, response) => {
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => chunks.push(chunk))
  request.on("end", () => {
    const message = Buffer.concat(chunks)
    for (const client of sockets.clients) client.send(message, { binary: false })
    response.writeHead(200, { "content-type": "application/json", "content-length": 2 })
    response.end("{}")
  })
})
const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: 4096 })
sockets.on("connection", socket => {
  socket.on("error", () => {})
})

server.listen(Number(process.env.PORT), "127.0.0.1")
