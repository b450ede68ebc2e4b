/**
 * The outputs that the log goes to, with a bound: what a reader does not read waits in memory, and a reader that stops
 * reading without closing would have it grow without end. Beyond the bound lines are dropped, counted and told of.
 */
import { Console as NodeConsole } from "node:console"
import { Writable } from "node:stream"
import { Console, Effect, Metric } from "effect"

const droppedLines = Metric.counter("log_lines_dropped_total", {
  description: "Writes to the log that were dropped, since what reads the log reads too slowly or not at all.",
  incremental: true
})

/** Makes the counter known before anything was dropped. */
export const register = (): void => {
  droppedLines.register()
}

/** Bytes that may wait for the reader of one output. */
export const mostWaiting = 4 * 1024 * 1024

/**
 * An output that passes on what it is given while less than `most` bytes wait in `output`. Having dropped something it
 * goes on when half of that is read, with `notice` of how much was dropped.
 */
export const bounded = (output: Writable, notice: (lines: number) => string, most = mostWaiting): Writable => {
  let dropped = 0
  const tell = (): void => {
    if (dropped === 0) return
    output.write(notice(dropped))
    dropped = 0
  }
  return new Writable({
    decodeStrings: false,
    write: (text: string | Buffer, encoding, done) => {
      if (output.writableLength >= (dropped === 0 ? most : most / 2)) {
        if (dropped === 0) output.once("drain", tell)
        dropped++
        droppedLines.unsafeUpdate(1, [])
      } else {
        tell()
        output.write(text, encoding)
      }
      done()
    }
  })
}

const message = "Lines of the log were dropped, since they were not read in time"

/** What is written in place of lines that were dropped. */
export const notice =
  (isJson: boolean) =>
  (lines: number): string => {
    const timestamp = new Date().toISOString()
    const line = isJson
      ? JSON.stringify({ level: "WARN", message, timestamp, fiber: "#0", annotations: { lines } })
      : `${timestamp} WARN ${message} (${lines})`
    return `${line}\n`
  }

/** Has an effect log to the outputs of the process within the bound. */
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
