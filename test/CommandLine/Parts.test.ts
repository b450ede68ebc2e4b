/** The parts of commands that need no process. */
import { appendFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Either, FastCheck as fc, Option } from "effect"
import * as ExactJson from "../../src/base/Json/ExactJson.ts"
import * as Arguments from "../../src/CommandLine/Arguments.ts"
import * as Connection from "../../src/CommandLine/Connection.ts"
import { start } from "../../src/CommandLine/Entries/Watch.ts"
import { stringWidth } from "../../src/CommandLine/Library.ts"
import * as Table from "../../src/CommandLine/Terminal/Output.ts"
import * as Progress from "../../src/CommandLine/Terminal/Progress.ts"
import { clean } from "../../src/CommandLine/Terminal/Text.ts"
import * as Batch from "../../src/CommandLine/Transfer/Batch.ts"
import * as Checkpoint from "../../src/CommandLine/Transfer/Checkpoint.ts"
import { codePoint } from "../CodePoint.ts"
import { times } from "../Scale.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

const node = (name: string, options: Record<string, boolean> = {}, ...below: ReadonlyArray<Arguments.Node>) => ({
  name,
  options: new Map(Object.entries(options)),
  below
})

const root = node(
  "causeway",
  {},
  node(
    "kv",
    {},
    node("get", { "--json": false, "--url": true }),
    node("set", { "--json": false, "--if-version": true })
  ),
  node("import", { "--resume": false })
)

describe("arguments", () => {
  /** Words, and how they are arranged; a word may be empty. */
  const cases: ReadonlyArray<readonly [string, string, string | object]> = [
    ["options may stand anywhere", "--url u kv get n --json k", "kv get --url u --json -- n k"],
    ["a value may follow an equals sign", "kv get --url=a=b n k", "kv get --url a=b -- n k"],
    ["a value may be empty", "kv get --url  n k", "kv get --url  -- n k"],
    ["a negative number is no option", "kv set n k -5", "kv set -- n k -5"],
    ["- is no option", "import -", "import -- -"],
    ["-- ends the options", "kv set -- n --json --", "kv set -- n --json --"],
    ["a name of a command may be a key", "kv get kv get", "kv get -- kv get"],
    ["help of a command", "kv get n -h", "kv get --help"],
    ["help of a group", "kv --help", "kv --help"],
    ["an option of another command", "kv get --resume n k", { unknown: "--resume" }],
    ["an unknown option", "kv get --jsno n k", { unknown: "--jsno" }],
    ["options of the library", "kv get --wizard", { unknown: "--wizard" }],
    ["a value for a switch", "kv get --json=true", { unknown: "--json" }],
    ["an unknown command", "frob", { unknown: "frob" }],
    ["an unknown command of a group", "kv frob", { unknown: "frob" }],
    ["an option without its value", "kv get n k --url", { missingValueOf: "--url" }],
    [
      "an option given twice with one value counts once",
      "kv get --json n --url=u k --json --url u",
      "kv get --json --url u -- n k"
    ],
    ["an option given twice with two values", "kv get --url u n k --url v", { repeated: "--url" }],
    ["help where a value is missing", "kv get --help --url", "kv get --help"]
  ]
  it.each(cases)("%s", (_, args, expected) => {
    const arranged = Arguments.arrange(args.split(" "), root)
    const { known: _known, path: _path, ...found } = { known: undefined, ...arranged }
    assert.deepStrictEqual(found, typeof expected === "string" ? { args: expected.split(" ") } : expected)
  })

  it.each<readonly [string, string | undefined]>([
    ["lst", "list"],
    ["ilst", "list"],
    ["lists", "list"],
    ["ls", "list"],
    ["wacth", "watch"],
    ["help", "--help"],
    ["-v", "--version"],
    ["--jsn", "--json"],
    ["frob", undefined],
    ["", undefined],
    ["l".repeat(100_000), undefined]
  ])("%s: the name that it is most like", (text, expected) => {
    assert.strictEqual(Arguments.suggestion(text, ["list", "watch", "set", "--json", "--help", "--version"]), expected)
  })

  it("lose no other argument, wherever options stand", () => {
    const word = fc.string().filter(text => !/^-/.test(text))
    fc.assert(
      fc.property(word, word, fc.nat(4), fc.string(), (namespace, key, at, url) => {
        const args = ["kv", "get", namespace, key]
        args.splice(at, 0, "--url", url)
        assert.deepStrictEqual(Arguments.arrange(args, root), {
          path: ["kv", "get"],
          args: ["kv", "get", "--url", url, "--", namespace, key]
        })
      }),
      { numRuns: times(200) }
    )
  })
})

describe("a table", () => {
  const columns: ReadonlyArray<Table.Column> = [
    { title: "KEY", shrinks: true },
    { title: "N", align: "right" },
    { title: "VALUE", shrinks: true }
  ]

  it("aligns columns, also with wide characters", () => {
    assert.strictEqual(
      Table.table(
        columns,
        [
          ["a", "1", "x"],
          ["日本", "22", ""]
        ],
        80
      ),
      "KEY    N  VALUE\na      1  x\n日本  22\n"
    )
  })

  it("is as wide as the terminal at most, and has no control character", () => {
    const text = fc.string({ unit: "grapheme", maxLength: 60 })
    const anything = fc.oneof(text, fc.string({ unit: codePoint, maxLength: 30 }))
    fc.assert(
      fc.property(
        fc.array(fc.tuple(anything, fc.nat(99).map(String), anything), { maxLength: 6 }),
        fc.integer({ min: 24, max: 120 }),
        (rows, cells) => {
          const lines = Table.table(columns, rows, cells).split("\n")
          assert.strictEqual(lines.length, rows.length + 2)
          for (const line of lines) {
            assert.isAtMost(stringWidth(line), cells)
            assert.notMatch(line, /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/)
          }
        }
      ),
      { numRuns: times(40) }
    )
  })
})

describe("progress", () => {
  const half = { done: 50, total: 100, doneBefore: 0, records: 1000, elapsed: 2000 }
  it("shows share, rate and the time that is left", () => {
    assert.strictEqual(
      Progress.line(half, 80),
      `${"#".repeat(15)}${"-".repeat(15)}  50 %  1,000 entries, 500/s, 00:02 left`
    )
    assert.strictEqual(Progress.line({ ...half, total: undefined }, 80), "1,000 entries, 500/s, 00:02")
    assert.strictEqual(
      Progress.line({ ...half, elapsed: 7_200_000 }, 200).slice(30),
      "  50 %  1,000 entries, 0/s, 2:00:00 left"
    )
    assert.isAtMost(Progress.line(half, 30).length, 30)
  })
  it("goes by the pace of this run alone", () => {
    assert.strictEqual(Progress.leftOf({ ...half, doneBefore: 40 }), 10_000)
    assert.strictEqual(Progress.leftOf({ ...half, elapsed: 10 }), undefined)
    assert.strictEqual(Progress.leftOf({ ...half, doneBefore: 50 }), undefined)
  })
})

describe("a file of profiles", () => {
  it.each<readonly [number, number, RegExp | undefined]>([
    [0o100600, 7, undefined],
    [0o100400, 0, undefined],
    // Secrets of containers.
    [0o100440, 0, undefined],
    [0o100444, 0, undefined],
    [0o100646, 0, /written by others/],
    [0o100644, 7, /read by others/],
    [0o100640, 7, /read by others/],
    [0o100620, 7, /written by others/],
    [0o100600, 8, /another user/]
  ])("with mode %o of user %d", (mode, uid, problem) => {
    const found = Connection.problemOfAccess("f", { mode, uid }, 7)
    if (problem === undefined) assert.isUndefined(found)
    else assert.match(found ?? "", problem)
  })

  it("names what is wrong, and no token", () => {
    const problem = (content: string) => Either.getOrThrow(Either.flip(Connection.parseProfiles("f", content))).message
    assert.strictEqual(problem('{"a":{"token":"sesame"'), "f is not JSON")
    assert.strictEqual(problem('{"a":{"tokne":"sesame"}}'), "f: a.tokne is not as expected")
    assert.strictEqual(problem('{"a":{"token":5}}'), "f: a.token is not as expected")
  })

  it("refuses a credential that no header can carry", () => {
    assert.isTrue(Either.isLeft(Connection.credentialOf("f", "a b")))
    assert.isTrue(Either.isLeft(Connection.credentialOf("f", "")))
    assert.isTrue(Either.isRight(Connection.credentialOf("f", " key\n")))
  })
})

describe("operations", () => {
  const operation = '{"op":"set","namespace":"n","key":"k","value":1.0}'
  it.each([
    `{"operations":[${operation}],"actor":"anna"}`,
    `[${operation}]`,
    operation,
    `${operation}\n${operation}\n`
  ])("%s", text => {
    const { actor, operations } = Either.getOrThrow(Batch.parse(text))
    assert.strictEqual(ExactJson.stringify(operations[0]), operation)
    assert.strictEqual(operations.length, text.split('"op"').length - 1)
    assert.strictEqual(actor, text.includes("anna") ? "anna" : undefined)
  })
  it.each([
    ["", ""],
    ["5", "not an object"],
    ["[5]", "no list of operations"],
    ['{"operation":[]}', "no list of operations"],
    ["[", ""],
    [`[${operation}],"actor":"anna"`, ""],
    ['{"operations":[],"actor":5}', "actor is not text"],
    // A value that continues in the next line is not split into two.
    [`${operation}\n{"op":"set","namespace":"n","key":"y","value":[1\n2]}`, "line 2: "],
    [`\n${operation}\n\n5`, "line 4: it is not an object"],
    [`${operation}\n{"key":"k"}`, "line 2 is no operation"]
  ])("refuses %j", (text, problem) => {
    const { exitCode, message } = Either.getOrThrow(Either.flip(Batch.parse(text)))
    assert.strictEqual(exitCode, 2)
    assert.include(message, problem)
  })
})

describe("where a follower starts", () => {
  const none = Option.none()
  const wanted = { namespace: none, prefix: none, from: none, epoch: none, tenant: none, updatesOnly: false }
  const end = { lastSeq: 7, epoch: "e" }
  it("is what was asked for, else the entries, else the end of the log", () => {
    assert.deepStrictEqual(start({ ...wanted, from: Option.some(3), epoch: Option.some("f") }, end), {
      after: 3,
      epoch: "f"
    })
    assert.deepStrictEqual(start({ ...wanted, namespace: Option.some("n"), prefix: Option.some("p") }, end), {
      namespace: "n",
      prefix: "p",
      initial: true
    })
    assert.deepStrictEqual(start({ ...wanted, namespace: Option.some("n"), updatesOnly: true }, end), {
      namespace: "n",
      initial: false
    })
    assert.deepStrictEqual(start({ ...wanted, tenant: Option.some("t") }, end), { after: 7, epoch: "e", tenant: "t" })
  })
})

describe("Text on a terminal", () => {
  it("may have a million carriage returns, each of which costs the same", () => {
    assert.strictEqual(clean("\r".repeat(1_000_000)), "\u240d".repeat(1_000_000))
  })
})

it.scoped("an import does not continue behind a last line that has become longer", () =>
  Effect.gen(function* () {
    const file = join(yield* temporaryDirectory, "file")
    const line = '{"key":"a"'
    writeFileSync(file, line)
    const { save } = yield* Checkpoint.open(file, [], "refuse")
    yield* save([{ number: 1, end: line.length, bytes: Buffer.from(line), text: line }])
    assert.strictEqual((yield* Checkpoint.open(file, [], "resume")).line, 1)
    appendFileSync(file, "}")
    assert.match(
      (yield* Effect.flip(Checkpoint.open(file, [], "resume"))).message,
      /the first 1 lines of the file differ/
    )
  })
)
