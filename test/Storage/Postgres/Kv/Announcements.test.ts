import { expect, it } from "@effect/vitest"
import { Announcements } from "../../../../src/Storage/Postgres/Kv/Announcements.ts"

/** Nodes that commit in turn, one a millisecond, and hear each other at once. Returns when which node announced what. */
const play = (nodes: number, millis: number) => {
  let now = 1000
  const all = Array.from({ length: nodes }, () => new Announcements(() => now))
  const sent: Array<{ readonly at: number; readonly node: number; readonly lastSeq: number }> = []
  for (let seq = 1; seq <= millis; seq++) {
    now++
    all[seq % nodes]!.committed(seq)
    for (const [node, announcements] of all.entries()) {
      if (!announcements.isPending || announcements.wait() > 0) continue
      const lastSeq = announcements.take()!
      sent.push({ at: now - 1000, node, lastSeq })
      for (const other of all) other.heard(lastSeq)
    }
  }
  return sent
}

for (const nodes of [1, 2, 3, 10]) {
  it(`${nodes} nodes send one notification in ten milliseconds, and the last write is never far ahead of it`, () => {
    const sent = play(nodes, 1000)
    expect(sent.length).toBeGreaterThan(80)
    expect(sent.length).toBeLessThanOrEqual(100)
    for (const [index, { at, lastSeq }] of sent.entries()) {
      expect(at - lastSeq).toBeLessThan(10)
      if (index > 0) expect(at - sent[index - 1]!.at).toBeGreaterThanOrEqual(10)
    }
  })
}

it("a commit that another node has announced with a later one is not announced again", () => {
  let now = 0
  const announcements = new Announcements(() => now)
  announcements.committed(7)
  expect(announcements.isPending).toBe(true)
  now = 5
  announcements.heard(9)
  expect(announcements.isPending).toBe(false)
  expect(announcements.take()).toBe(undefined)
  announcements.committed(7)
  expect(announcements.isPending).toBe(false)
})

it("an earlier one leaves it pending for an interval more, but not for ever", () => {
  let now = 0
  const announcements = new Announcements(() => now)
  announcements.committed(7)
  expect(announcements.wait()).toBe(10)
  for (now = 5; now < 50; now += 5) {
    announcements.heard(6)
    expect(announcements.wait()).toBe(Math.min(10, 50 - now))
  }
  expect(announcements.wait()).toBe(0)
  expect(announcements.take()).toBe(7)
})

it("a commit of another log, which has lower numbers, is announced too, though the echo of the last one comes late", () => {
  const announcements = new Announcements(() => 0)
  announcements.committed(100)
  expect(announcements.take()).toBe(100)
  announcements.committed(3)
  announcements.heard(100)
  expect(announcements.take()).toBe(3)
})
