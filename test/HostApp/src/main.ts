/** Runs the shop on each server, uses it as clients do, restarts it many times, and prints what came of it as JSON. */
import { makeClient } from "causewayd/client"
import { Context, Effect, Exit, Layer, Scope } from "effect"
import { application, type Kind, Port } from "./Application.ts"
import * as Spans from "./Spans.ts"

const token = "anna-token"

const restarts = Number(process.argv[2] ?? 20)

interface Frame {
  readonly type: string
  readonly [member: string]: unknown
}

/** A client of the gateway that emits frames as they arrive. */
const connect = async (port: number) => {
  // As a browser does, which cannot set headers.
  const socket = new WebSocket(`ws://127.0.0.1:${port}/agents/ws`, ["causeway.v1", `bearer.${token}`])
  const frames: Array<Frame> = []
  const waiting = new Set<() => void>()
  socket.addEventListener("message", ({ data }) => {
    frames.push(JSON.parse(String(data)))
    for (const check of waiting) check()
  })
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve)
    socket.addEventListener("error", () => reject(new Error("The gateway does not open a WebSocket")))
  })
  const until = (type: string) =>
    new Promise<Frame>(resolve => {
      const check = () => {
        const found = frames.find(frame => frame.type === type)
        if (found === undefined) return
        waiting.delete(check)
        resolve(found)
      }
      waiting.add(check)
      check()
    })
  return { socket, until, send: (frame: object) => socket.send(JSON.stringify(frame)) }
}

const start = async (kind: Kind) => {
  const scope = Effect.runSync(Scope.make())
  const context = await Effect.runPromise(Layer.buildWithScope<never, unknown, Port>(application(kind), scope))
  return { port: Context.get(context, Port), stop: () => Effect.runPromise(Scope.close(scope, Exit.void)) }
}

const get = async (port: number, path: string, credential = token) => {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization: `Bearer ${credential}` } })
  return { status: answer.status, text: await answer.text() }
}

/** What the shop's clients see of it. */
const visit = async (kind: Kind) => {
  Spans.names.clear()
  const { port, stop } = await start(kind)
  const client = makeClient({ baseUrl: `http://127.0.0.1:${port}`, prefix: "/data", token })
  const written = await client.set("tenant:shop/stock", "apples", 9, { actor: "forged" })
  const read = await client.get("tenant:shop/stock", "apples")
  const followed: Array<unknown> = []
  for await (const event of client.follow({ after: 0 })) {
    followed.push(event)
    break
  }
  const foreign = await get(port, "/data/kv/tenant%3Aother/apples")
  const guest = await fetch(`http://127.0.0.1:${port}/data/kv/tenant%3Ashop/k`, {
    method: "PUT",
    headers: { authorization: "Bearer guest-token", "content-type": "application/json" },
    body: '{"value":1}'
  })
  const stock = await get(port, "/orders/stock")
  const { send, socket, until } = await connect(port)
  send({ type: "create_session", id: "1", agentType: "coder" })
  const created = await until("session_created")
  const { id: sessionId } = created.session as { readonly id: string }
  send({ type: "subscribe", id: "2", sessionId })
  await until("subscribed")
  send({ type: "send_message", id: "3", sessionId, content: "hello" })
  const completed = await until("turn_completed")
  const sessions = await client.list("tenant:shop/sessions")[Symbol.asyncIterator]().next()
  const metrics = await get(port, "/internal/metrics")
  const ready = await get(port, "/probes/ready")
  const bare = await get(port, "/api/v1/kv/n/k")
  socket.close()
  await stop()
  return {
    written,
    read,
    followed,
    stock: JSON.parse(stock.text),
    refused: [foreign.status, guest.status, (await refusedOf(kind)).status, bare.status],
    turn: { type: completed.type, isOfSession: completed.sessionId === sessionId },
    sessions: sessions.value?.items.map(({ updatedBy }: { readonly updatedBy: string }) => updatedBy),
    ready: JSON.parse(ready.text),
    metrics: metrics.text.split("\n").filter(line => /^(?:shop_writes_total|http_requests_in_flight)/.test(line)),
    spans: [...Spans.names].filter(name => /^(?:http\.server|kv\.|orders)/.test(name)).sort()
  }
}

/** A stranger is let in nowhere. */
const refusedOf = async (kind: Kind) => {
  const { port, stop } = await start(kind)
  const answer = await get(port, "/data/changes", "stranger")
  await stop()
  return answer
}

const listenersOf = () =>
  process.eventNames().reduce((sum, name) => sum + process.listenerCount(name as NodeJS.Signals), 0)

/** The resources of the idle process. */
const held = async () => {
  // Sockets close in the turns after the end, of which a busy machine may need many.
  const hasSockets = () => process.getActiveResourcesInfo().some(name => name.startsWith("TCP"))
  for (let turn = 0; turn < 20 || (turn < 10_000 && hasSockets()); turn++) {
    await new Promise(resolve => setImmediate(resolve))
  }
  globalThis.gc?.()
  const resources = process.getActiveResourcesInfo().filter(name => !/^(?:PipeWrap|TTYWrap|Immediate)$/.test(name))
  return { heap: process.memoryUsage().heapUsed, listeners: listenersOf(), resources: resources.sort() }
}

/** Starts the shop, leaves followers and an open session connected, and ends it. */
const restart = async (kind: Kind) => {
  const { port, stop } = await start(kind)
  const client = makeClient({ baseUrl: `http://127.0.0.1:${port}`, prefix: "/data", token })
  await client.set("tenant:shop/stock", "apples", 1)
  const poll = get(port, "/data/changes?after=1&wait=60").catch(() => undefined)
  const stream = await fetch(`http://127.0.0.1:${port}/data/changes/stream`, {
    headers: { authorization: `Bearer ${token}` }
  })
  const read = stream.text().catch(() => "")
  const { send, socket, until } = await connect(port)
  send({ type: "create_session", id: "1", agentType: "coder" })
  await until("session_created")
  const closed = new Promise(resolve => socket.addEventListener("close", resolve))
  await stop()
  await Promise.all([poll, read, closed])
}

const visits = { stock: await visit("stock"), edge: await visit("edge") }
const measured: Array<Awaited<ReturnType<typeof held>>> = []
for (let round = 0; round < restarts; round++) {
  await restart(round % 2 === 0 ? "stock" : "edge")
  measured.push(await held())
}
console.log(JSON.stringify({ visits, measured }))
