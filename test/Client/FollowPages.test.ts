/** The pages of a list that a follower of a namespace reads, if the log is replaced between two of them. */
import { expect, it } from "vitest"
import { type CursorPage, followNamespace } from "../../src/Client/Follow.ts"
import type { LogReader } from "../../src/Client/LogReader.ts"
import type { FollowEvent } from "../../src/Client/Model.ts"

const namespace = "n"

const page = (epoch: string, key: string, cursor?: string): CursorPage => ({
  items: [{ namespace, key, value: epoch, version: 1, updatedBy: "a", updatedAt: 0, expiresAt: null }],
  ...{ lastSeq: 9, epoch, cursor }
})

it("entries of two logs are not taken for one list", async () => {
  const pages = [page("old", "a", "1"), page("new", "b"), page("new", "a", "1"), page("new", "b")]
  const cursors: Array<string | undefined> = []
  const reader = {
    retrying: <A>(work: () => Promise<A>) => work(),
    pause: () => Promise.resolve(),
    pages: async function* () {}
  } as unknown as LogReader
  const seen: Array<FollowEvent> = []
  for await (const event of followNamespace(reader, { tenant: undefined, namespace }, cursor => {
    cursors.push(cursor)
    return Promise.resolve(pages.shift()!)
  })) {
    seen.push(event)
    if (event.type === "synced") break
  }
  expect(cursors).toEqual([undefined, "1", undefined, "1"])
  expect(seen.map(event => (event.type === "entry" ? `${event.entry.key} ${event.entry.value}` : event.type))).toEqual([
    "a old",
    "reset",
    "a new",
    "b new",
    "synced"
  ])
  expect(seen.at(-1)).toEqual({ type: "synced", lastSeq: 9, epoch: "new" })
})
