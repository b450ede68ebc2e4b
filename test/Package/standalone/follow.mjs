/** A follower of each kind, and what it received until the end of its connection. */
import { get } from "node:http"
import WebSocket from "ws"

const headers = { authorization: "Bearer alice" }

const textOf = async stream => {
  let text = ""
  for await (const chunk of stream) text += chunk
  return text
}

const open = (port, path) =>
  new Promise((resolve, reject) =>
    get({ port, host: "127.0.0.1", path, headers, agent: false }, resolve).on("error", reject)
  )

/** Waits until a change was read by each of them. Returns what they get at the end. */
export const follow = async (port, prefix) => {
  const api = `${prefix}/api/v1`
  const stream = await open(port, `${api}/changes/stream`)
  const socket = new WebSocket(`ws://127.0.0.1:${port}${api}/changes/ws`, { headers })
  const first = new Promise((resolve, reject) => socket.on("message", resolve).on("error", reject))
  const closed = new Promise(resolve => socket.on("close", resolve))
  const poll = open(port, `${api}/changes?after=1&wait=60`).then(textOf)
  const { changes } = JSON.parse(String(await first))
  return { seen: changes.map(({ key, actor }) => [key, actor]), ends: Promise.all([textOf(stream), closed, poll]) }
}

/** PUTs an entry, and reads it. */
export const write = async (port, prefix) => {
  const url = `http://127.0.0.1:${port}${prefix}/api/v1/kv/tenant%3Aacme%2Fx/k`
  const init = { method: "PUT", headers: { ...headers, "content-type": "application/json" }, body: '{"value":[1]}' }
  const written = await fetch(url, init)
  await written.text()
  const stranger = await fetch(url, { headers: { authorization: "Bearer unknown" } })
  await stranger.text()
  const other = await fetch(`http://127.0.0.1:${port}${prefix}/api/v1/kv/tenant%3Aevil/k`, { headers })
  await other.text()
  const read = await (await fetch(url, { headers })).json()
  return [written.status, stranger.status, other.status, read.value, read.updatedBy]
}

/** Who sends a request. One answer comes at once, the other later. */
export const identity = ({ credential }) => {
  if (credential === "Bearer alice") return { access: "write", actor: "alice", tenant: "acme" }
  return Promise.resolve(null)
}
