import { expect, it } from "@effect/vitest"
import { NotificationSchedule } from "../../../../src/Storage/Postgres/Kv/NotificationSchedule.ts"

/** Nodes that commit in turn, one a millisecond, and receive notifications at once. Returns the notifications. */
const play = (nodes: number, millis: number) => {
  let now = 1000
  const all = Array.from({ length: nodes }, () => new NotificationSchedule(() => now))
  const sent: Array<{ readonly at: number; readonly node: number; readonly lastSeq: number }> = []
  for (let seq = 1; seq <= millis; seq++) {
    now++
    all[seq % nodes]!.committed(seq)
    for (const [node, schedule] of all.entries()) {
      if (!schedule.isPending || schedule.wait() > 0) continue
      const lastSeq = schedule.take()!
      sent.push({ at: now - 1000, node, lastSeq })
      for (const other of all) other.received(lastSeq)
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

it("a commit that another node has notified with a later one is not notified again", () => {
  let now = 0
  const schedule = new NotificationSchedule(() => now)
  schedule.committed(7)
  expect(schedule.isPending).toBe(true)
  now = 5
  schedule.received(9)
  expect(schedule.isPending).toBe(false)
  expect(schedule.take()).toBe(undefined)
  schedule.committed(7)
  expect(schedule.isPending).toBe(false)
})

it("an earlier one delays it by an interval, but not without a limit", () => {
  let now = 0
  const schedule = new NotificationSchedule(() => now)
  schedule.committed(7)
  expect(schedule.wait()).toBe(10)
  for (now = 5; now < 50; now += 5) {
    schedule.received(6)
    expect(schedule.wait()).toBe(Math.min(10, 50 - now))
  }
  expect(schedule.wait()).toBe(0)
  expect(schedule.take()).toBe(7)
})

it("a commit of another log, which has lower numbers, is notified too, though the echo of the last one arrives late", () => {
  const schedule = new NotificationSchedule(() => 0)
  schedule.committed(100)
  expect(schedule.take()).toBe(100)
  schedule.committed(3)
  schedule.received(100)
  expect(schedule.take()).toBe(3)
})
