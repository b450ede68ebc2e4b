/** Followers of the log at different positions, over connections that record their frames. */

import { describe, expect, it } from "@effect/vitest"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import type { Connection } from "../../../src/Http/WebSocket.ts"
import * as Change from "../../../src/Kv/Change.ts"
import { Follower } from "../../../src/Kv/ChangeFeed/Follower.ts"
import { FollowerSet } from "../../../src/Kv/ChangeFeed/FollowerSet.ts"
import { Page } from "../../../src/Kv/ChangeFeed/Pages.ts"
import { query } from "./Harness.ts"

const namespace = "tenant:a/n"

const record = (seq: number) =>
  Change.encode({
    ...{ seq, op: "set", namespace, key: "k", value: JsonText("1"), version: seq },
    ...{ actor: "tester", timestamp: 0 }
  })

/** A page of the records after one `seq`, up to another one. */
const page = (after: number, lastSeq: number) =>
  Page.of({
    changes: Array.from({ length: lastSeq - after }, (_, index) => record(after + 1 + index)),
    ...{ lastSeq, epoch: "e", isComplete: false }
  })

/** Followers of a log, and its end as far as it is known. */
const setup = () => {
  const log = { end: 0 }
  const set = new FollowerSet(
    () => log.end,
    () => 0,
    () => {},
    () => {},
    undefined
  )
  /** Adds a follower, whose first page ends at the end of the log. Returns what it is sent. */
  const follow = (after: number, tenant = "") => {
    const sent: Array<number> = []
    const connection = {
      ...{ isOpen: true, hasRoom: true },
      sendFrame: (frame: Buffer) => {
        for (const [, seq] of frame.toString("latin1").matchAll(/"seq":(\d+)/g)) sent.push(Number(seq))
      }
    } as unknown as Connection
    new Follower(connection, set, query(after, tenant), page(after, log.end)).onOpen()
    return sent
  }
  return { log, set, follow }
}

describe("followers of the log", () => {
  it("receive each change once, if they come after the log has grown and before it is read for the others", () => {
    const { follow, log, set } = setup()
    log.end = 3
    const first = follow(1)
    log.end = 5
    const [second, third] = [follow(3), follow(5)]
    expect([first, second, third]).toEqual([[2, 3], [4, 5], []])
    // The page is as old as the first of the two.
    set.advance(page(3, 4), 3)
    expect([first, second, third]).toEqual([[2, 3, 4], [4, 5], []])
    set.advance(page(4, 7), 4)
    expect([first, second, third]).toEqual([
      [2, 3, 4, 5, 6, 7],
      [4, 5, 6, 7],
      [6, 7]
    ])
    set.advance(page(7, 8), 7)
    expect([first, second, third].map(sent => sent.at(-1))).toEqual([8, 8, 8])
  })
})
