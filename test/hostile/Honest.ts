/** Honest clients, which must be answered during every attack. */
import { WebSocket } from "ws"
import type { Target } from "./Target.ts"
import { keys } from "./Wire.ts"

const auth = { authorization: `Bearer ${keys.write}` }

/** Milliseconds after which an answer counts as missing; it only guards against a hang. */
const patience = 60_000

/** The outcome of the operations of all honest clients. */
export interface Outcome {
  readonly failures: ReadonlyArray<string>
  /** Duration of each operation, in milliseconds. */
  readonly durations: ReadonlyArray<number>
}

/** The 99th percentile. */
export const p99 = ({ durations }: Outcome): number =>
  [...durations].sort((a, b) => a - b)[Math.floor(durations.length * 0.99)] ?? 0

/** Sets an entry, reads it back, and finds the write in the change log, a list and again as the same version. */
const operations = (client: number) => (target: Target, round: number) => {
  const base = `${target.url}/api/v1`
  const name = `honest/c${client}`
  const json = async (path: string, init: RequestInit = {}): Promise<Record<string, unknown>> => {
    const answer = await fetch(base + path, { ...init, headers: auth, signal: AbortSignal.timeout(patience) })
    const text = await answer.text()
    if (answer.status !== 200) throw new Error(`${answer.status} ${text.slice(0, 200)}`)
    return JSON.parse(text)
  }
  const path = `/kv/${encodeURIComponent(name)}`
  return [
    async () => {
      const headers = { ...auth, "content-type": "application/json" }
      const body = JSON.stringify({ value: round })
      const answer = await fetch(`${base}${path}/k`, {
        method: "PUT",
        headers,
        body,
        signal: AbortSignal.timeout(patience)
      })
      if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`)
      await answer.arrayBuffer()
    },
    async () => {
      const { value } = await json(`${path}/k`)
      if (value !== round) throw new Error(`read ${value} after writing ${round}`)
    },
    async () => {
      const { items } = await json(`${path}?limit=10`)
      if (!Array.isArray(items) || items.length !== 1) throw new Error("the list lacks the entry")
    },
    // That the store answered its probe within a second is for the machine's load to say; an answer is due in any case.
    () => json("/ready").then(() => undefined)
  ]
}

/** A conversation on `/ws` that answers pings of its own. */
const chat = (target: Target) =>
  new Promise<{ readonly ask: () => Promise<void>; readonly close: () => void }>((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${target.port}/ws`)
    const waiting = new Map<string, () => void>()
    const failing = new Set<(error: Error) => void>()
    let id = 0
    socket.on("message", data => waiting.get(JSON.parse(String(data)).id)?.())
    socket.on("error", reject)
    socket.on("close", code => {
      for (const fail of failing) fail(new Error(`/ws was closed with ${code}`))
    })
    const ask = () =>
      new Promise<void>((answered, fail) => {
        const name = String(++id)
        failing.add(fail)
        waiting.set(name, () => {
          failing.delete(fail)
          waiting.delete(name)
          answered()
        })
        if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "ping", id: name }))
        else fail(new Error("/ws is closed"))
      })
    socket.on("open", () => resolve({ ask, close: () => socket.terminate() }))
  })

/** Runs so many clients at once; each repeats its operations so many times. */
export const work = async (target: Target, clients: number, rounds: number): Promise<Outcome> => {
  const failures: Array<string> = []
  const durations: Array<number> = []
  const run = async (what: string, operation: () => Promise<void>) => {
    const start = performance.now()
    for (;;) {
      try {
        await operation()
        break
      } catch (error) {
        // A client obeys Retry-After, as where a disk that others use takes longer than a write may.
        if (error instanceof Error && error.message.startsWith("503 ") && performance.now() - start < patience) {
          await new Promise(resolve => setTimeout(resolve, 1000))
          continue
        }
        failures.push(`${what}: ${error}`)
        break
      }
    }
    durations.push(performance.now() - start)
  }
  const conversation = await chat(target)
  const one = async (client: number) => {
    for (let round = 0; round < rounds; round++) {
      for (const [index, operation] of operations(client)(target, round).entries()) {
        await run(`round ${round}, operation ${index}`, operation)
      }
      await run("a ping on /ws", conversation.ask)
    }
  }
  await Promise.all(Array.from({ length: clients }, (_, client) => one(client)))
  conversation.close()
  return { failures, durations }
}
