/** Opening the connection of sessions in the console, in virtual time. */
import { afterEach, assert, beforeEach, describe, it, vi } from "vitest"
import { sourceOf, stubPage } from "./Page.ts"

interface Signal<A> {
  readonly value: A
}

interface Connection {
  readonly signIn: (credential: string) => Promise<boolean>
  readonly openSessions: () => Promise<void>
  readonly sessions: Signal<{ readonly close: () => void } | undefined>
  readonly isOpeningSessions: Signal<boolean>
  readonly sessionsRefusal: Signal<string>
  readonly sessionsProblem: Signal<string>
}

/** Whether the gateway accepts connections, or the status of a plain request to its path; `undefined` for no answer. */
type Gateway = "open" | { readonly status: number | undefined }

let gateway: Gateway = "open"

/** The times of connection attempts, in virtual milliseconds. */
const tried: Array<number> = []

class FakeSocket extends EventTarget {
  constructor() {
    super()
    tried.push(Date.now())
    const name = gateway === "open" ? "open" : "error"
    setTimeout(() => this.dispatchEvent(new Event(name)), 1)
  }
  send() {}
  close() {}
}

const answer = async (address: string | URL | Request): Promise<Response> => {
  const { pathname } = new URL(address instanceof Request ? address.url : address)
  if (pathname !== "/ws") return Response.json({ ok: true, results: [] })
  const status = gateway === "open" ? 426 : gateway.status
  if (status === undefined) throw new TypeError("Failed to fetch")
  return Response.json({ error: "the reason" }, { status })
}

describe("The connection of sessions in the console", () => {
  let connection: Connection
  let retryNow: () => void

  beforeEach(async () => {
    tried.length = 0
    vi.useFakeTimers()
    stubPage(answer)
    vi.stubGlobal("WebSocket", FakeSocket)
    connection = await import(sourceOf("Service/Connection.ts"))
    const pauses: { readonly retryNow: () => void } = await import(sourceOf("Service/Pause.ts"))
    retryNow = pauses.retryNow
    assert.isTrue(await connection.signIn("key"))
  })

  afterEach(() => {
    connection.sessions.value?.close()
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  const present = () => ({
    isOpen: connection.sessions.value !== undefined,
    isOpening: connection.isOpeningSessions.value,
    refusal: connection.sessionsRefusal.value
  })

  it.each([undefined, 502, 503])(
    "is retried with backoff while the service answers %s, and at once when it recovers",
    async status => {
      gateway = { status }
      void connection.openSessions()
      await vi.advanceTimersByTimeAsync(120_000)
      assert.isAbove(tried.length, 10)
      const [first = 0, ...others] = tried
      const distances = others.map((time, index) => time - (tried[index] ?? first))
      assert.isAtMost(distances[0] ?? 0, 1 + 125)
      assert.isAtMost(Math.max(...distances), 1 + 30_000 / 8)
      assert.deepStrictEqual(present(), { isOpen: false, isOpening: true, refusal: "" })
      assert.notStrictEqual(connection.sessionsProblem.value, "")
      gateway = "open"
      retryNow()
      await vi.advanceTimersByTimeAsync(10)
      assert.deepStrictEqual(present(), { isOpen: true, isOpening: false, refusal: "" })
      assert.strictEqual(connection.sessionsProblem.value, "")
    }
  )

  it("is not retried if the token is refused", async () => {
    gateway = { status: 401 }
    void connection.openSessions()
    await vi.advanceTimersByTimeAsync(120_000)
    assert.strictEqual(tried.length, 1)
    assert.deepStrictEqual(present(), { isOpen: false, isOpening: false, refusal: "the reason" })
    gateway = "open"
    void connection.openSessions()
    await vi.advanceTimersByTimeAsync(10)
    assert.deepStrictEqual(present(), { isOpen: true, isOpening: false, refusal: "" })
  })
})
