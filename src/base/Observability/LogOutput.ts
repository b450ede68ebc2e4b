/**
 * Bounded output of the log. Unread bytes of a pipe are buffered in memory; above a limit lines are
 * dropped and counted, and a notice is logged.
 */
import { Console as NodeConsole } from "node:console"
import { Writable } from "node:stream"
import { Console, Effect, Metric } from "effect"

const droppedLines = Metric.counter("log_lines_dropped_total", {
  description: "Writes to the log that were dropped, since what reads the log reads too slowly or not at all.",
  incremental: true
})

/** Registers the counter with 0. */
export const register = (): void => {
  droppedLines.register()
}

/** Bytes that may be buffered for one output. */
export const maxWaiting = 4 * 1024 * 1024

/**
 * A stream that writes to `output` while less than `most` bytes are buffered there. After it has dropped lines it
 * resumes at half of that, with a `notice` of their number.
 */
export const bounded = (output: Writable, notice: (lines: number) => string, most = maxWaiting): Writable => {
  let dropped = 0
  const writeNotice = (): void => {
    if (dropped === 0) return
    output.write(notice(dropped))
    dropped = 0
  }
  return new Writable({
    decodeStrings: false,
    write: (text: string | Buffer, encoding, done) => {
      if (output.writableLength >= (dropped === 0 ? most : most / 2)) {
        if (dropped === 0) output.once("drain", writeNotice)
        dropped++
        droppedLines.unsafeUpdate(1, [])
      } else {
        writeNotice()
        output.write(text, encoding)
      }
      done()
    }
  })
}

const message = "Lines of the log were dropped, since they were not read in time"

/** The line that replaces dropped ones. */
export const notice =
  (isJson: boolean) =>
  (lines: number): string => {
    const timestamp = new Date().toISOString()
    const line = isJson
      ? JSON.stringify({ level: "WARN", message, timestamp, fiber: "#0", annotations: { lines } })
      : `${timestamp} WARN ${message} (${lines})`
    return `${line}\n`
  }

/** Bounds the output of an effect's console. */
export const withBound =
  (isJson: boolean) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Console.consoleWith(console => {
      const unsafe = new NodeConsole({
        stdout: bounded(process.stdout, notice(isJson)),
        stderr: bounded(process.stderr, notice(isJson)),
        colorMode: process.stdout.isTTY
      })
      return Effect.withConsole(effect, { ...console, unsafe })
    })
