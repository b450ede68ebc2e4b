/** `node:http` alone: the same entry for every request, from memory. */
import { createServer } from "node:http"

const body = JSON.stringify({
  namespace: "tenant:bench/area-0",
  key: "item-000",
  value: {
    name: "item 0",
    count: 0,
    price: 12.5,
    tags: ["alpha", "beta"],
    active: true,
    note: "a note of some length"
  },
  version: 1,
  updatedBy: "api",
  updatedAt: 1_790_000_000_000,
  expiresAt: null
})
const headers = { "content-type": "application/json", etag: '"1"', "content-length": Buffer.byteLength(body) }

createServer((_, response) => {
  response.writeHead(200, headers)
  response.end(body)
}).listen(Number(process.env.PORT), "127.0.0.1")
