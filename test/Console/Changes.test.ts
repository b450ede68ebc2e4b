/** The change feed of the console: what it shows of changes. */
import { afterEach, assert, beforeEach, describe, it, vi } from "vitest"
import { sourceOf, stubPage } from "./Page.ts"

interface Changes {
  readonly close: () => void
  readonly shown: {
    readonly value: ReadonlyArray<{ readonly preview: string }>
    readonly subscribe: (listener: (shown: Changes["shown"]["value"]) => void) => () => void
  }
}

const value = '{"id":12345678901234567890,"2":1,"1":2,"x":1.0,"y":"\\u00e9\\ud800"}'

const change = (seq: number, op: string, value: string) =>
  `{"seq":${seq},"op":"${op}","namespace":"n","key":"k","value":${value},"version":${seq},"actor":"a","timestamp":1,"tenantId":""}`

/** The log, which ends where it was asked for by long polls, and which nothing follows. */
const log = `{"changes":[${change(1, "set", value)},${change(2, "set", `"${"x".repeat(1000)}"`)},${change(3, "delete", "null")}],"lastSeq":3}`

const answer = async (address: string | URL | Request): Promise<Response> => {
  const { searchParams } = new URL(address instanceof Request ? address.url : address)
  const text = searchParams.get("after") === "0" ? log : '{"changes":[],"lastSeq":3}'
  return new Response(text, { headers: { "content-type": "application/json" } })
}

class SilentSocket extends EventTarget {
  send() {}
  close() {}
}

describe("The change feed of the console", () => {
  beforeEach(() => {
    stubPage(answer)
    vi.stubGlobal("requestAnimationFrame", (work: () => void) => {
      queueMicrotask(work)
      return 1
    })
    vi.stubGlobal("cancelAnimationFrame", () => {})
    vi.stubGlobal("WebSocket", SilentSocket)
  })

  afterEach(() => vi.unstubAllGlobals())

  it("shows the beginnings of values as they were written", async () => {
    const { Changes }: { readonly Changes: new () => Changes } = await import(sourceOf("Feed/Changes.ts"))
    const changes = new Changes()
    const previews = await new Promise<ReadonlyArray<string>>(resolve =>
      changes.shown.subscribe(shown => {
        if (shown.length === 3) resolve(shown.map(({ preview }) => preview))
      })
    )
    changes.close()
    assert.deepStrictEqual(previews, [value, `"${"x".repeat(199)}`, ""])
  })
})
