/** The source reads the wall clock only for timestamps and for expiry, never to measure or to wait. */
import { readdirSync, readFileSync } from "node:fs"
import { join, relative } from "node:path"
import { expect, it } from "vitest"

/** Ways to read the wall clock, those of Effect's schedules and caches included. */
const readings =
  /[cC]urrentTimeMillis|\bDate\.now\b|new Date\(\s*\)|\bDateTime\.(?:now|unsafeNow)|Schedule\.(?:elapsed|during|upTo|fixed|windowed|cron|resetAfter)\b|\bWithTTL\b|cachedWithTTL|cachedInvalidateWithTTL|\bCache\.make|\bStream\.throttle|\bperformance\.timeOrigin/g

/** How often each file reads it, and why. Add a new reading to this list, or use monotonic time. */
const allowed: Readonly<Record<string, number>> = {
  // The age of session histories, by the timestamps of their events.
  "Gateway/SessionEvents/Memory.ts": 2,
  "Storage/Sqlite/SessionEvents.ts": 1,
  // `exp` of tokens.
  "Gateway/Authentication.ts": 2,
  "Gateway/Socket.ts": 1,
  "Gateway/AiSdk/Socket.ts": 1,
  "Gateway/Streams/EventStreams.ts": 1,
  // Cursors of durable streams, which count intervals of the wall clock; and `exp` of tokens.
  "Gateway/HttpSessions/Events.ts": 2,
  // Timestamps of events, sessions and ids.
  "Gateway/Sessions/Session/SessionCore.ts": 1,
  "Gateway/Sessions/Session/SessionRecords.ts": 1,
  "Simulator/Instance.ts": 1,
  // The age of a creation: the monotonic clock does not advance while the machine is suspended.
  "Gateway/Sessions/Creation.ts": 2,
  // When sessions were active.
  "Gateway/Sessions/ActivityList.ts": 1,
  "Storage/Commit/SessionCommit.ts": 1,
  "Storage/Postgres/SessionEvents.ts": 1,
  // Expiry and timestamps of entries.
  "Storage/Commit/GroupCommit.ts": 1,
  "Storage/Housekeeping.ts": 1,
  "Storage/Memory.ts": 1,
  "Storage/Postgres/Database/DatabaseClock.ts": 3,
  "Storage/Sqlite.ts": 5,
  "Storage/Sqlite/Database/Reader.ts": 1,
  // The time of a backup, in its manifest, and in the name of the files that a restore moves aside.
  "Storage/Backup.ts": 1,
  "Storage/Backup/Restore.ts": 1,
  // The times of answers, and whether a time is of today.
  "Console/Service/Source.ts": 1,
  "Console/Widgets/Text.ts": 2,
  // Times of samples.
  "Operations/Activity/Recorder.ts": 3,
  "Operations/Activity/Report.ts": 1,
  // The age of something, next to it.
  "Console/Widgets/Hooks.ts": 2,
  // Timestamps of lines that the log writes by itself.
  "base/Observability/LogOutput.ts": 1,
  "base/Process/ShutdownDeadline.ts": 1,
  // A wall clock for tests.
  "Simulator/Testing/Time.ts": 3,
  // Dates in `Retry-After`.
  "Client/Errors.ts": 1,
  "Upstream/Resilience/UpstreamFailure.ts": 1
}

const root = new URL("../../src", import.meta.url).pathname

it("reads the wall clock for timestamps and expiry alone", () => {
  const found: Record<string, number> = {}
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\.[cm]?[jt]s$/.test(entry.name)) continue
    const file = join(entry.parentPath, entry.name)
    // Comments do not count.
    const text = readFileSync(file, "utf8").replaceAll(/^\s*(?:\*|\/\/|\/\*).*$/gm, "")
    const count = text.match(readings)?.length ?? 0
    if (count > 0) found[relative(root, file)] = count
  }
  expect(found).toEqual(allowed)
})
