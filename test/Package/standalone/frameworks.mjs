/** The same in fastify, and in a framework that takes mount points off as express does. Prints a line of JSON. */
import { createServer } from "node:http"
import { createRequire } from "node:module"
import { createCauseway } from "causewayd-standalone"
import { follow, identity, write } from "./follow.mjs"

const { fastify } = createRequire(process.argv[2])("fastify")
const prefix = "/store"
const results = {}

const exercise = async (name, causeway, port, own) => {
  const answers = await write(port, prefix)
  const { seen, ends } = await follow(port, prefix)
  const host = await (await fetch(`http://127.0.0.1:${port}${own}`)).text()
  await causeway.close()
  const [, code] = await ends
  results[name] = { answers, seen, host, code }
}

{
  const causeway = await createCauseway({ store: "memory", identity, prefix })
  const app = fastify()
  // Before the framework reads the body.
  app.addHook("onRequest", (request, reply, done) => {
    if (!request.raw.url.startsWith(`${prefix}/`)) return done()
    reply.hijack()
    causeway.handler(request.raw, reply.raw)
  })
  app.get("/hello", () => "hello")
  app.server.on("upgrade", (request, socket, head) => causeway.upgrade(request, socket, head) || socket.destroy())
  await app.listen({ port: 0, host: "127.0.0.1" })
  await exercise("fastify", causeway, app.server.address().port, "/hello")
  await app.close()
}

{
  const causeway = await createCauseway({ store: "memory", identity, prefix })
  const mount = (path, handler) => (request, response, next) => {
    request.originalUrl = request.url
    if (!request.url.startsWith(`${path}/`)) return next()
    request.url = request.url.slice(path.length)
    handler(request, response, next)
  }
  const mounted = mount(prefix, causeway.handler)
  const server = createServer((request, response) => mounted(request, response, () => response.end("hello")))
  server.on("upgrade", causeway.upgrade)
  await new Promise(resolve => server.listen(0, "127.0.0.1", resolve))
  await exercise("express-like", causeway, server.address().port, "/hello")
  server.close()
  server.closeAllConnections()
}

console.log(JSON.stringify(results))
