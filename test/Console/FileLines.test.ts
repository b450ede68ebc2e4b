/** Lines of files that the console imports. */
import { assert, describe, it } from "@effect/vitest"
import { linesOf } from "../../src/Console/Store/FileLines.ts"

describe("lines of a file", () => {
  it("lose a byte order mark, and end at bytes that are not UTF-8", async () => {
    const file = new Blob(["\ufeffcaf\xe9\n", "\n", Buffer.from("caf\xe9\n", "latin1"), "x\n"])
    const lines: Array<string> = []
    const problem = await (async () => {
      for await (const line of linesOf(file)) lines.push(line)
    })().then(
      () => "",
      (error: Error) => error.message
    )
    assert.deepStrictEqual([lines, problem], [["caf\xe9", ""], "Line 3: it is not UTF-8"])
  })

  it("are found in whatever pieces they arrive", async () => {
    const text = Array.from({ length: 9000 }, (_, index) => "x".repeat(index % 97)).join("\n")
    const lines: Array<string> = []
    for await (const line of linesOf(new Blob([text]))) lines.push(line)
    assert.strictEqual(lines.join("\n"), text)
  })
})
