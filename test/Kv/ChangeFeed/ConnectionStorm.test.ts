import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { yieldToEventLoop } from "../../../src/base/Time/EventLoop.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import type * as WebSocket from "../../../src/Http/WebSocket.ts"
import { FollowerSlots } from "../../../src/Kv/ChangeFeed/LogWaiters.ts"
import { Page, type Pages } from "../../../src/Kv/ChangeFeed/Pages.ts"
import * as WebSockets from "../../../src/Kv/ChangeFeed/WebSockets.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { LastSeq } from "../../../src/Storage/Commit/StoreCommit.ts"
import { change, query, quietLog } from "./Harness.ts"

/** A log in memory, and its pages. */
const growing = () => {
  const end = new LastSeq()
  let lastSeq = 1
  const pageAfter = (after: number) =>
    after < lastSeq ? new Page([change(lastSeq)], lastSeq, "e", false) : Page.empty(lastSeq, "e")
  const read: Pages["next"] = ({ after }) => Effect.sync(() => pageAfter(after))
  const pages: Pages = { fresh: read, next: read, end: () => lastSeq, epoch: () => "e" }
  const grow = (): void => end.set(++lastSeq)
  end.set(lastSeq)
  return { pages, grow, log: { ...quietLog, awaitPast: (seq: number) => end.awaitPast(seq) } }
}

/** Opens a follower at the end of the log over a connection that only counts frames. */
const open = (sockets: WebSockets.WebSockets, after: number) => {
  let frames = 0
  const sent = () => {
    frames++
  }
  const ignored = (): void => {}
  const connection: WebSocket.Connection = {
    ...{ isOpen: true, hasRoom: true, blockedSince: undefined },
    ...{ send: sent, sendFrame: sent },
    ...{ pause: ignored, resume: ignored, close: ignored, terminate: ignored, tick: ignored }
  }
  sockets.upgrade(query(after), Page.empty(after, "e")).accept(handlerOf => {
    handlerOf(connection).onOpen()
    return undefined
  })
  return () => frames
}

it.scopedLive("followers get changes while others connect in every turn of the event loop", () => {
  const { grow, log, pages } = growing()
  return Effect.gen(function* () {
    const sockets = yield* WebSockets.make(pages, new FollowerSlots(1000, () => false), 1000)
    const framesOf = open(sockets, pages.end())
    for (let turn = 0; turn < 100; turn++) {
      open(sockets, pages.end())
      if (turn === 20) grow()
      yield* yieldToEventLoop
    }
    expect(framesOf()).toBe(1)
  }).pipe(Effect.provide(DrainingSignal.layer), Effect.provideService(ChangeLog, log))
})
