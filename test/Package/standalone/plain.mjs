/** Twenty runs on one plain server of `node:http`. Prints a line of JSON. */
import { existsSync, readdirSync } from "node:fs"
import { createServer } from "node:http"
import { createCauseway } from "causewayd-standalone"
import { follow, identity, write } from "./follow.mjs"

const prefix = "/store"
const route = 'route="/store/api/v1/kv/{namespace}/{key}"'
let causeway
const server = createServer((request, response) =>
  causeway.handler(request, response, () => response.end("the host's own"))
)
server.on("upgrade", (request, socket, head) => causeway.upgrade(request, socket, head) || socket.destroy())
await new Promise(resolve => server.listen(0, "127.0.0.1", resolve))
const { port } = server.address()

const run = async directory => {
  causeway = await createCauseway({ store: { directory }, identity, prefix, metrics: { tags: { store: "one" } } })
  const answers = await write(port, prefix)
  const { seen, ends } = await follow(port, prefix)
  const own = await (await fetch(`http://127.0.0.1:${port}/other`)).text()
  const [ready, text] = [await causeway.ready(), await causeway.metrics()]
  await Promise.all([causeway.close(), causeway.close()])
  const [stream, code, poll] = await ends
  const late = await fetch(`http://127.0.0.1:${port}${prefix}/api/v1/health`)
  await late.text()
  return {
    ...{ answers, seen, own, ready, code, late: late.status },
    isStream: stream.startsWith("retry: 1000\n"),
    poll: JSON.parse(poll).changes,
    isCounted: text.includes(`http_requests_total{method="PUT",${route},status="200",store="one"} 1\n`)
  }
}

/** Sockets, timers, threads and open files of the process. */
const held = () => {
  const files = existsSync("/proc/self/fd") ? readdirSync("/proc/self/fd").length : 0
  return process.getActiveResourcesInfo().length + files
}

const runs = [await run(`${process.argv[2]}/0`)]
// The first run has loaded all that is loaded late.
const before = held()
for (let index = 1; index < 20; index++) {
  const { isCounted: _, ...result } = await run(`${process.argv[2]}/${index}`)
  runs.push(result)
}
globalThis.gc()
const after = held()
const effect = await import("effect").then(
  () => "found",
  () => "not found"
)
const refused = await createCauseway({ store: "memory", identity, prefix: "store" }).catch(error => error.message)
const taken = await createCauseway({ store: { directory: "/dev/null/x" }, identity }).catch(error => error.message)
await new Promise(resolve => {
  server.close(resolve)
  server.closeAllConnections()
})
console.log(JSON.stringify({ runs, leaked: after - before, effect, refused, taken }))
