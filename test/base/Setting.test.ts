import { describe, expect, it } from "@effect/vitest"
import { Config, ConfigProvider, Duration, Effect, Either, Option, Redacted } from "effect"
import * as Limits from "../../src/base/Limits.ts"
import * as Setting from "../../src/base/Setting.ts"
import { test } from "../Tests.ts"

type Environment = Readonly<Record<string, string>>

const load = <A>(config: Config.Config<A>, environment: Environment) =>
  config.pipe(
    Effect.withConfigProvider(ConfigProvider.fromMap(new Map(Object.entries(environment)))),
    Effect.either,
    Effect.runSync
  )

const message = <A>(config: Config.Config<A>, environment: Environment) =>
  Either.match(load(config, environment), { onLeft: String, onRight: () => undefined })

const count = Setting.integer("TEST_COUNT", { description: "How many", default: 3, min: -1, max: 9 })
const flag = Setting.boolean("TEST_FLAG", { description: "Whether", default: true })
const text = Setting.string("TEST_TEXT", { description: "What", default: "none" })
const word = Setting.declare(
  "TEST_WORD",
  { description: "Which", allowed: "one of red, green", default: "red", shown: "red" },
  text => Option.liftPredicate(text, text => text === "red" || text === "green")
)
const span = Setting.optionalDuration("TEST_SPAN", { description: "How long", shown: "forever" })
const secret = Setting.optionalSecret("TEST_SECRET", { description: "Hush", shown: "none" })
/** What the secret holds: `Redacted` values are equal to each other in the eyes of `toEqual`. */
const shown = Config.map(secret, Option.map(Redacted.value))
const credential = Setting.optionalCredential("TEST_CREDENTIAL", { description: "Open", shown: "none" })
const strictSecret = Setting.declare(
  "TEST_STRICT_SECRET",
  { description: "Hush", allowed: "a long secret", default: Option.none<Redacted.Redacted>(), shown: "none" },
  value => (value.length > 8 ? Option.some(Option.some(Redacted.make(value))) : Option.none()),
  true
)

describe("Setting", () => {
  const readings: ReadonlyArray<readonly [Config.Config<unknown>, Environment, unknown]> = [
    [count, {}, 3],
    [count, { TEST_COUNT: "-1" }, -1],
    [count, { TEST_COUNT: "+9" }, 9],
    [count, { TEST_COUNT: " 007 " }, 7],
    [flag, {}, true],
    ...["true", "TRUE", "1", "yes", "On"].map(value => [flag, { TEST_FLAG: value }, true] as const),
    ...["false", "False", "0", "no", "OFF"].map(value => [flag, { TEST_FLAG: value }, false] as const),
    [text, {}, "none"],
    [text, { TEST_TEXT: " a b " }, "a b"],
    [word, {}, "red"],
    [word, { TEST_WORD: "green" }, "green"],
    [span, {}, Option.none()],
    [span, { TEST_SPAN: "7 days" }, Option.some(Duration.days(7))],
    [span, { TEST_SPAN: "30 seconds" }, Option.some(Duration.seconds(30))],
    [secret, {}, Option.none()],
    [shown, { TEST_SECRET: "hunter2" }, Option.some("hunter2")],
    [shown, { TEST_SECRET: " hunter2\t\n" }, Option.some(" hunter2\t\n")],
    [shown, { TEST_SECRET: "a,b ; ü" }, Option.some("a,b ; ü")]
  ]
  it.each(readings)("%# reads %j", (config, environment, value) => {
    expect(load(config, environment)).toEqual(Either.right(value))
  })

  it.each<[string, Config.Config<unknown>, unknown]>([
    ["TEST_COUNT", count, 3],
    ["TEST_FLAG", flag, true],
    ["TEST_TEXT", text, "none"],
    ["TEST_WORD", word, "red"],
    ["TEST_SPAN", span, Option.none()],
    ["TEST_SECRET", secret, Option.none()]
  ])("%s counts as unset when it is empty or blank", (name, config, value) => {
    for (const blank of ["", " ", "\t\n"]) expect(load(config, { [name]: blank })).toEqual(Either.right(value))
  })

  it.each<[Config.Config<unknown>, string, ReadonlyArray<string>, string]>([
    [
      count,
      "TEST_COUNT",
      ["-2", "10", "3.0", "1e1", "0x3", "three", "1,0", "3 4", "٣", "9".repeat(400)],
      "a whole number from -1 to 9"
    ],
    [flag, "TEST_FLAG", ["maybe", "2", "t", "truee"], "true or false"],
    [word, "TEST_WORD", ["blue", "Red", "red,green"], "one of red, green"],
    [
      span,
      "TEST_SPAN",
      ["7", "days", "7 dayz", "-1 days", "0 seconds", "Infinity", "1e999 days"],
      "a duration such as 7 days"
    ]
  ])("%# says of %s what is wrong and what is allowed", (config, name, values, allowed) => {
    for (const value of values) {
      const said = message(config, { [name]: value })
      expect(said).toContain(name)
      expect(said).toContain(JSON.stringify(value))
      expect(said).toContain(allowed)
    }
  })

  it("never shows a secret", () => {
    const said = message(strictSecret, { TEST_STRICT_SECRET: "hunter2" })
    expect(said).toContain("TEST_STRICT_SECRET")
    expect(said).toContain("the value is not a long secret")
    expect(said).not.toContain("hunter2")
    const loaded = load(secret, { TEST_SECRET: "hunter2" })
    expect(`${String(loaded)} ${JSON.stringify(loaded)}`).not.toContain("hunter2")
  })

  it("accepts as a credential only a single token of a header", () => {
    const visible = String.fromCharCode(...Array.from({ length: 0x5e }, (_, index) => 0x21 + index))
    expect(load(credential, { TEST_CREDENTIAL: ` ${visible}\n` })).toEqual(
      Either.right(Option.some(Redacted.make(visible)))
    )
    for (const value of ["hunter 2", "hunter\t2", "hunter\n2", "hünter2", "hunter\u00a02", "hunter\u007f2", "猎2"]) {
      const said = message(credential, { TEST_CREDENTIAL: value })
      expect(said).toContain("TEST_CREDENTIAL")
      expect(said).toContain("the value is not visible ASCII without blanks")
      expect(said).not.toContain(value)
    }
  })

  it.each([
    ["htp://u:SECRET@h", '"htp://…@h"'],
    ["http://u:SEC/RET@h", '"http://…@h"'],
    ["http://u:SEC\nRET@h:x/p", '"http://…@h:x/p"'],
    ["http:u:SECRET@h", '"…@h"'],
    ["SECRET@h", '"…@h"'],
    ["http://h/?token=SECRET#x", '"http://h/?…"'],
    ["http://h/?token=SECRET@x", '"http://…@x"'],
    ["ftp://h/p", '"ftp://h/p"']
  ])("does not show the password in %j", (value, shown) => {
    const said = message(count, { TEST_COUNT: value })
    expect(said).toContain(`${shown} is not a whole number`)
    expect(said).not.toMatch(/SEC|RET/)
  })

  it("reports all problems together", () => {
    const said = message(Config.all({ count, flag, text, inner: Config.all([word, span]) }), {
      TEST_COUNT: "many",
      TEST_FLAG: "perhaps",
      TEST_TEXT: "fine",
      TEST_WORD: "blue",
      TEST_SPAN: "long"
    })
    for (const part of ["TEST_COUNT", "many", "TEST_FLAG", "perhaps", "TEST_WORD", "blue", "TEST_SPAN", "long"]) {
      expect(said).toContain(part)
    }
    expect(said).not.toContain("TEST_TEXT")
  })

  it("has a description, the allowed values and the default of every variable", () => {
    expect(Setting.all().filter(({ name }) => name.startsWith("TEST_"))).toMatchObject([
      { name: "TEST_COUNT", description: "How many", allowed: "a whole number from -1 to 9", default: "3" },
      { name: "TEST_CREDENTIAL", description: "Open", allowed: "visible ASCII without blanks", default: "none" },
      { name: "TEST_FLAG", description: "Whether", allowed: "true or false", default: "true" },
      { name: "TEST_SECRET", description: "Hush", default: "none" },
      { name: "TEST_SPAN", description: "How long", default: "forever" },
      { name: "TEST_STRICT_SECRET", default: "none" },
      { name: "TEST_TEXT", description: "What", allowed: "any text", default: "none" },
      { name: "TEST_WORD", description: "Which", allowed: "one of red, green", default: "red" }
    ])
  })
})

describe("Limits", () => {
  test.effect("have the same defaults with and without configuration", function* () {
    expect(load(Limits.config, {})).toEqual(Either.right(yield* Limits.Limits))
  })

  it("are read from the environment, each within its bounds", () => {
    const loaded = load(Limits.config, { LIMIT_KEY_BYTES: "10", LIMIT_JSON_DEPTH: "1000" })
    expect(loaded).toMatchObject({ right: { keyBytes: 10, jsonDepth: 1000 } })
    const said = message(Limits.config, { LIMIT_KEY_BYTES: "0", LIMIT_JSON_DEPTH: "1001" })
    expect(said).toContain("LIMIT_KEY_BYTES")
    expect(said).toContain("LIMIT_JSON_DEPTH")
  })
})
