/** A page that uses the client: the test calls its functions and looks at what it has gathered. */
import { makeClient, makeSessions, type Sessions, type TransportName } from "../../../src/Client/Client.ts"

/** The events that the page received. */
interface Gathered {
  /** The `seq` of each change, by the way that it came. */
  readonly changes: { readonly [name in TransportName]?: Array<number> }
  readonly ways: Array<string>
  readonly events: Array<number>
  readonly updates: Array<string>
  text: string
  readonly failures: Array<string>
}

const gathered: Gathered = {
  changes: { webSocket: [], serverSentEvents: [] },
  ways: [],
  events: [],
  updates: [],
  text: "",
  failures: []
}

/** Pauses are a tenth of what they may be. */
const clock = {
  now: () => performance.now(),
  after: (ms: number, callback: () => void) => {
    const timer = setTimeout(callback, ms)
    return () => clearTimeout(timer)
  },
  random: () => 0.1
}

const failed = (error: unknown): void => {
  gathered.failures.push(String(error))
}

const namespace = "tenant:acme/page"

let sessions: Sessions | undefined
let sessionId = ""

const api = {
  /** Reads and writes entries. */
  entries: async (baseUrl: string, token: string) => {
    const client = makeClient({ baseUrl, token })
    const entry = await client.set(namespace, "a/ü", { dark: true }, { ifVersion: 0 })
    const stale = await client.set(namespace, "a/ü", 1, { ifVersion: 7 }).catch(error => error)
    const absent = await client.get(namespace, "none")
    const known = await client.get(namespace, "a/ü", { known: entry })
    const keys: Array<string> = []
    await client.batch(["b", "c"].map(key => ({ op: "set", namespace, key, value: key })))
    for await (const { items } of client.list(namespace, { limit: 2 })) keys.push(...items.map(({ key }) => key))
    const refused = await makeClient({ baseUrl, token: "wrong" })
      .get(namespace, "b")
      .catch(error => error)
    return {
      version: entry.version,
      isSame: known === entry,
      isAbsent: absent === undefined,
      stale: [stale._tag, stale.currentVersion],
      keys,
      refused: [refused._tag, typeof refused.requestId]
    }
  },

  /** Follows the log by both ways, and begins a session. */
  begin: async (baseUrl: string, key: string, token: string) => {
    for (const transport of ["webSocket", "serverSentEvents"] as const) {
      const client = makeClient({ baseUrl, token: key, clock, transports: [transport] })
      const onStatus = (status: { readonly type: string }) => gathered.ways.push(`${transport} ${status.type}`)
      void (async () => {
        for await (const event of client.follow({ after: 0, tenant: "acme", onStatus })) {
          if (event.type === "change" && event.change.namespace === namespace) {
            gathered.changes[transport]?.push(event.change.seq)
          } else if (event.type !== "change") gathered.failures.push(event.type)
        }
      })().catch(failed)
    }
    sessions = makeSessions({ baseUrl, token: () => token, clock })
    const { id } = await sessions.create("echo")
    sessionId = id
    void (async (sessions: Sessions) => {
      for await (const update of sessions.subscribe(id)) {
        gathered.updates.push(update.type)
        if (update.type !== "event") continue
        gathered.events.push(update.event.seq)
        if (update.event.type === "text_delta") gathered.text += update.event.text
      }
    })(sessions).catch(failed)
    return id
  },

  say: async (content: string) => (await sessions?.send(sessionId, content))?.turnId,

  write: async (baseUrl: string, token: string, key: string) =>
    (await makeClient({ baseUrl, token }).set(namespace, key, key)).version,

  look: () => gathered,

  /** The answer to a page without permission. */
  knock: async (baseUrl: string, key: string, token: string) => {
    const tagOf = (promise: Promise<unknown>) =>
      promise.then(
        () => "allowed",
        error => error._tag
      )
    return [
      await tagOf(makeClient({ baseUrl, token: key }).get(namespace, "b")),
      await tagOf(makeSessions({ baseUrl, token }).connect())
    ]
  }
}

Object.assign(globalThis, { client: api })
