import { Writable } from "node:stream"
import { assert, describe, it } from "@effect/vitest"
import * as LogOutput from "../../src/Observability/LogOutput.ts"

/** An output whose reader reads on request. */
const slow = () => {
  const read: Array<string> = []
  const waiting: Array<() => void> = []
  const output = new Writable({
    highWaterMark: 10,
    write: (chunk, _encoding, done) => {
      waiting.push(() => {
        read.push(String(chunk))
        done()
      })
    }
  })
  const step = async (): Promise<void> => {
    waiting.shift()?.()
    await new Promise(setImmediate)
  }
  return { output, read, step }
}

const notice = (lines: number): string => `[${lines}]`

describe("The output of the log", () => {
  it("buffers a bounded amount for a reader that does not read", () => {
    const { output } = slow()
    const log = LogOutput.bounded(output, notice)
    for (let line = 0; line < 20_000; line++) log.write("x".repeat(1000))
    assert.isAtMost(output.writableLength, LogOutput.maxWaiting + 1000)
    assert.strictEqual(log.writableLength, 0)
  })

  it("continues when half of it is read, and reports there how much is missing", async () => {
    const { output, read, step } = slow()
    const log = LogOutput.bounded(output, notice, 40)
    for (const line of "abcdefg") log.write(line.repeat(10))
    assert.strictEqual(output.writableLength, 40)
    await step()
    log.write("h".repeat(10))
    await step()
    await step()
    log.write("i".repeat(10))
    for (let left = 0; left < 5; left++) await step()
    assert.deepStrictEqual(
      read.map(text => (text.startsWith("[") ? text : text[0])),
      ["a", "b", "c", "d", "[4]", "i"]
    )
  })

  it("reports it as soon as all is read, if nothing more is logged", async () => {
    const { output, read, step } = slow()
    const log = LogOutput.bounded(output, notice, 20)
    for (const line of "abc") log.write(line.repeat(10))
    for (let left = 0; left < 3; left++) await step()
    assert.deepStrictEqual(read.slice(2), ["[1]"])
  })

  it("gives notice as the log is written", () => {
    const { timestamp, ...line } = JSON.parse(LogOutput.notice(true)(3))
    assert.isFalse(Number.isNaN(Date.parse(timestamp)))
    assert.deepStrictEqual(line, {
      level: "WARN",
      message: "Lines of the log were dropped, since they were not read in time",
      fiber: "#0",
      annotations: { lines: 3 }
    })
    assert.match(LogOutput.notice(false)(3), /WARN Lines .* \(3\)\n$/)
  })
})
