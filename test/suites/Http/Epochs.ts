import { expect } from "@effect/vitest"
import { Effect } from "effect"
import {
  bodyOf,
  type ChangesBody,
  type Check,
  call,
  end,
  expectError,
  listAt,
  numbered,
  put,
  setAll,
  space
} from "./Fixture.ts"
import { events, once, webSocket } from "./Followers.ts"

/** The epoch of the log, from an empty list. */
const epochNow = Effect.map(call("GET", listAt("nobody's")), answer => String(answer.headers["kv-epoch"]))

/** What a WebSocket is sent until it is closed, and the code; or its first frame where that is all that is wanted. */
const messages = (query: string, most = Number.POSITIVE_INFINITY) =>
  Effect.gen(function* () {
    const frames: Array<unknown> = []
    const socket = yield* webSocket(query)
    socket.on("message", data => {
      frames.push(JSON.parse(String(data)))
      if (frames.length === most) socket.close(1000)
    })
    return { code: yield* once<number>(socket, "close"), frames }
  })

/** An event stream up to the first event. */
const first = (query: string, lastEventId?: string) =>
  events(query, text => text.includes("data:"), lastEventId === undefined ? {} : { "last-event-id": lastEventId })

/** The epoch of the log: the answers that have it, and the notifications of a new one. */
export const epochs = (check: Check) => {
  check("every list and every page of changes has the epoch of the log", function* () {
    const namespace = space()
    // Too much for one page, so that the whole list is streamed.
    yield* setAll(namespace, numbered(1200))
    const epoch = yield* epochNow
    for (const target of [
      listAt(namespace),
      `${listAt(namespace)}?limit=1`,
      "/api/v1/changes?limit=1",
      "/api/v1/changes?after=999999999"
    ]) {
      const answer = yield* call("GET", target)
      expect([target, answer.status, answer.headers["kv-epoch"]]).toEqual([target, 200, epoch])
    }
    expect((yield* call("HEAD", "/api/v1/changes")).headers["kv-epoch"]).toBe(epoch)
  })

  check("a poll that knows the log is answered, one that knows another is 410", function* () {
    yield* put(space(), "k", 1)
    const epoch = yield* epochNow
    const last = yield* end
    const plain = yield* call("GET", `/api/v1/changes?after=${last - 1}`)
    for (const known of [epoch, ""]) {
      const answer = yield* call("GET", `/api/v1/changes?after=${last - 1}&epoch=${known}`)
      expect([answer.status, answer.text]).toEqual([200, plain.text])
      expect(bodyOf<ChangesBody>(answer).changes).toHaveLength(1)
    }
    for (const query of ["after=0", `after=${last}`, `after=${last}&wait=60`, `after=${last + 9}`, "tenant=none"]) {
      for (const other of [`${epoch}x`, "%20"]) {
        const answer = yield* call("GET", `/api/v1/changes?${query}&epoch=${other}`)
        expectError(answer, 410, epoch, "list again")
        expect(answer.headers["kv-epoch"]).toBe(epoch)
      }
    }
    expectError(yield* call("GET", "/api/v1/changes?epoch=a&epoch=b"), 400, "epoch")
  })

  check("an event stream with the epoch of another log is 410, and ids of events contain the epoch", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const epoch = yield* epochNow
    const last = yield* end
    const id = `id: ${last}@${epoch}\ndata: `
    for (const [query, lastEventId] of [
      [`after=${last - 1}`, undefined],
      [`after=${last - 1}&epoch=${epoch}`, undefined],
      [`after=${last - 1}&epoch=${epoch}`, ""],
      ["after=0", `${last - 1}@${epoch}`],
      ["after=0", `${last - 1}`],
      [`after=0&epoch=${epoch}`, `${last - 1}`],
      ["after=0&epoch=other", `${last - 1}@${epoch}`]
    ] as const) {
      const received = yield* first(query, lastEventId)
      expect([query, received.status]).toEqual([query, 200])
      expect(received.text).toContain(id)
      expect(received.text.match(/^data:/gm)).toHaveLength(1)
    }
    for (const [query, lastEventId] of [
      ["after=0&epoch=other", undefined],
      ["after=0&epoch=other", `${last}`],
      [`after=${last}&epoch=${epoch}`, `${last}@other`],
      ["", "0@other"]
    ] as const) {
      const received = yield* first(query, lastEventId)
      expect([query, received.status, received.headers.get("kv-epoch")]).toEqual([query, 410, epoch])
      expect(JSON.parse(received.text)).toEqual({ error: expect.stringContaining("list again") })
    }
  })

  check("a WebSocket with the epoch of another log receives the current one, and is closed", function* () {
    yield* put(space(), "k", 1)
    const epoch = yield* epochNow
    const last = yield* end
    for (const after of [0, last, last + 9]) {
      const { code, frames } = yield* messages(`after=${after}&epoch=other`)
      expect([code, frames]).toEqual([4010, [{ type: "reset", epoch, lastSeq: last }]])
    }
    const { frames } = yield* messages(`after=${last - 1}&epoch=${epoch}`, 1)
    expect(frames).toEqual([{ type: "changes", changes: [expect.anything()], lastSeq: last, epoch }])
  })
}
