/** Honest clients, which must be answered during every attack. */
import {
  type Client,
  ConnectionFailed,
  makeClient,
  makeSessions,
  ServiceUnavailable,
  type Sessions
} from "../../src/exports/client.ts"
import type { Target } from "./Target.ts"
import { keys } from "./Wire.ts"

const auth = { authorization: `Bearer ${keys.write}` }

/** Milliseconds after which an answer counts as missing; it only guards against a hang. */
const patience = 240_000

/** The outcome of the operations of all honest clients. */
export interface Outcome {
  readonly failures: ReadonlyArray<string>
  /** Duration of each operation, in milliseconds. */
  readonly durations: ReadonlyArray<number>
}

/** The 99th percentile. */
export const p99 = ({ durations }: Outcome): number =>
  [...durations].sort((a, b) => a - b)[Math.floor(durations.length * 0.99)] ?? 0

/** Sets an entry, reads it, and finds it in a list; probes the service and the gateway. */
const operations = (client: Client, sessions: Sessions, ready: string, name: string) => (round: number) => {
  const signal = AbortSignal.timeout(patience)
  return [
    () => client.set(name, "k", round, { signal }),
    async () => {
      const entry = await client.get(name, "k", { signal })
      if (entry?.value !== round) throw new Error(`read ${entry?.value} after writing ${round}`)
    },
    async () => {
      for await (const { items } of client.list(name, { limit: 10, signal })) {
        if (items.length !== 1) throw new Error("the list lacks the entry")
      }
    },
    // That the store answered its probe within a second is for the machine's load to say; an answer is due in any case.
    async () => {
      const answer = await fetch(ready, { headers: auth, signal })
      await answer.text()
      if (answer.status !== 200) throw new Error(`${answer.status}`)
    },
    async () => {
      for await (const _page of sessions.list({ limit: 1, signal })) break
    }
  ]
}

/** Runs so many clients at once; each repeats its operations so many times. */
export const work = async ({ url }: Target, clients: number, rounds: number): Promise<Outcome> => {
  const failures: Array<string> = []
  const durations: Array<number> = []
  const run = async (what: string, operation: () => Promise<unknown>) => {
    const start = performance.now()
    for (;;) {
      try {
        await operation()
        break
      } catch (error) {
        // A client obeys Retry-After, as where a disk that others use takes longer than a write may.
        if (error instanceof ServiceUnavailable && performance.now() - start < patience) {
          await new Promise(resolve => setTimeout(resolve, error.retryAfterMs ?? 1000))
          continue
        }
        failures.push(`${what}: ${error}`)
        break
      }
    }
    durations.push(performance.now() - start)
  }
  const client = makeClient({ baseUrl: url, token: keys.write, timeoutMs: patience })
  let isConnected = false
  // A lost connection would be replaced silently.
  const sessions = makeSessions({
    baseUrl: url,
    timeoutMs: patience,
    onStatus: status => isConnected && status.type === "disconnected" && failures.push(`/ws was lost: ${status.error}`)
  })
  const one = async (index: number) => {
    const of = operations(client, sessions, `${url}/api/v1/ready`, `honest/c${index}`)
    for (let round = 0; round < rounds; round++) {
      for (const [step, operation] of of(round).entries()) await run(`round ${round}, operation ${step}`, operation)
    }
  }
  // A handshake has a time limit of the client's own, which a busy machine may need more than once.
  for (const start = performance.now(); !isConnected; ) {
    try {
      await sessions.connect()
      isConnected = true
    } catch (error) {
      if (!(error instanceof ConnectionFailed) || performance.now() - start > patience) throw error
    }
  }
  await Promise.all(Array.from({ length: clients }, (_, index) => one(index)))
  sessions.close()
  return { failures, durations }
}
