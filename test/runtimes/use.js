/**
 * Uses a service in dev mode by the plain client, on whichever runtime it is started: entries, the change feed, and a
 * session. Arguments: the module of the client, and the address of the service. Prints what it has seen as JSON.
 */
const [client, baseUrl] = process.argv.slice(2)
const { makeClient, makeSessions, PreconditionFailed } = await import(client)

const namespace = "tenant:demo/runtimes"
const seen = {}
const store = makeClient({ baseUrl, token: "dev-key" })
const { version } = await store.set(namespace, "a", { list: [1, "é"] })
seen.entry = (await store.get(namespace, "a")).value
seen.conflict = await store.set(namespace, "a", 2, { ifVersion: version + 1 }).then(
  () => "none",
  error => error instanceof PreconditionFailed && error._tag
)
seen.feeds = {}
for (const transport of ["webSocket", "serverSentEvents", "longPolling"]) {
  const statuses = []
  const onStatus = status => {
    statuses.push(status.transport)
    if (statuses.length === 1) void store.set(namespace, transport, 1)
  }
  const client = makeClient({ baseUrl, token: "dev-key", transports: [transport] })
  for await (const event of client.follow({ namespace, initial: false, onStatus })) {
    if (event.type !== "change") continue
    seen.feeds[statuses[0]] = event.change.key
    break
  }
}
seen.sessions = {}
for (const transport of ["webSocket", "http"]) {
  const sessions = makeSessions({ baseUrl, token: "dev", transport })
  const { id } = await sessions.create("echo")
  const { turnId } = await sessions.send(id, "hello")
  let text = ""
  for await (const update of sessions.subscribe(id)) {
    if (update.type !== "event") continue
    if (update.event.type === "text_delta") text += update.event.text
    if (update.event.type === "turn_completed" && update.event.turnId === turnId) break
  }
  seen.sessions[transport] = text
  sessions.close()
}
console.log(JSON.stringify(seen))
