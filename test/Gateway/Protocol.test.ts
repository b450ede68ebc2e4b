import { Either, FastCheck as fc, Redacted, Schema } from "effect"
import { describe, expect, it, vi } from "vitest"
import * as Examples from "../../src/Gateway/Protocol/Examples.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"
import { decodeRequest, type InvalidRequest } from "../../src/Gateway/Requests.ts"
import { codePoint } from "../CodePoint.ts"
import { times } from "../Scale.ts"

const numRuns = times(300)

const requests = Object.values(Examples.requests)
const answers = Object.values(Examples.answers)
const events = Examples.allBodies.map(body => Protocol.event(Examples.envelope, body))

/** What a frame is refused with, or nothing where it is taken. */
const refusal = (frame: unknown): InvalidRequest | undefined => {
  const text = typeof frame === "string" ? frame : JSON.stringify(frame)
  return Either.getOrUndefined(Either.flip(decodeRequest(text)))
}

const nested = (levels: number): string => `${"[".repeat(levels)}${"]".repeat(levels)}`

const answerFrame = (value: string): string =>
  `{"type":"answer","id":"1","sessionId":"s","requestId":"r","answer":${value}}`

/** A value that each field refuses. */
const wrongValues: Readonly<Record<string, unknown>> = {
  agentType: 5,
  title: null,
  environment: ["a"],
  secrets: "all",
  sessionId: "../other",
  afterSeq: -1,
  epoch: 1,
  content: { text: "hello" },
  turnId: "",
  clientMessageId: "x".repeat(257),
  requestId: false,
  path: ["a"],
  depth: 1.5,
  iteration: "3",
  limit: 201,
  order: "age",
  waiting: "yes",
  cursor: ""
}

/** Fields that take any JSON value of bounded depth. */
const anyValue = new Set(["deployment", "answer"])

describe("requests", () => {
  it.each(requests)("$type is decoded", frame => {
    const request = Either.getOrThrow(decodeRequest(Protocol.encode(frame)))
    expect(Schema.encodeSync(Protocol.Request)(request)).toStrictEqual(frame)
  })

  it("each have an example and an answer", () => {
    expect(requests.map(({ type }) => type)).toStrictEqual([...Protocol.requestTypes])
    const answered = new Set(answers.map(({ type }) => type))
    for (const type of Protocol.requestTypes) expect(answered).toContain(Protocol.answerTypes[type])
  })

  it.each(requests)("$type names each missing or invalid field, and keeps its id", frame => {
    const fields = Object.keys(frame).filter(name => name !== "type" && name !== "id")
    for (const name of fields) {
      if (!anyValue.has(name)) {
        expect(wrongValues).toHaveProperty(name)
        const wrong = refusal({ ...frame, [name]: wrongValues[name] })
        expect(wrong).toMatchObject({ id: "1", code: "bad_request" })
        expect(wrong?.message).toMatch(new RegExp(`^Invalid request: ${name}: `))
      }
      const { [name]: _, ...rest }: Readonly<Record<string, unknown>> = frame
      const missing = refusal(rest)
      if (missing !== undefined) expect(missing.message).toBe(`Invalid request: ${name}: is missing`)
    }
  })

  it.each([
    ["get_session", "sessionId"],
    ["create_session", "agentType"],
    ["send_message", "content"],
    ["answer", "answer"],
    ["answer", "requestId"],
    ["read_file", "path"],
    ["file_at_iteration", "iteration"]
  ] as const)("%s cannot do without %s", (type, name) => {
    const { [name]: _, ...rest }: Readonly<Record<string, unknown>> = Examples.requests[type]
    expect(refusal(rest)?.message).toBe(`Invalid request: ${name}: is missing`)
  })

  it.each([
    ["create_session", { type: "create_session", id: "1", agentType: "a" }],
    ["subscribe", { type: "subscribe", id: "1", sessionId: "s" }],
    ["interrupt_turn", { type: "interrupt_turn", id: "1", sessionId: "s" }],
    ["list_files", { type: "list_files", id: "1", sessionId: "s" }]
  ])("%s does without what is optional", (_, frame) => {
    expect(refusal(frame)).toBeUndefined()
  })

  it.each([
    ["", "Invalid request: the frame is not JSON"],
    ["{", "Invalid request: the frame is not JSON"],
    ["[]", "Invalid request: the frame is not a JSON object"],
    ["null", "Invalid request: the frame is not a JSON object"],
    ['"ping"', "Invalid request: the frame is not a JSON object"],
    ["{}", "Invalid request: type: is missing"],
    ['{"type":5,"id":"1"}', "Invalid request: type: must be text"],
    ['{"type":"dance","id":"1"}', 'Invalid request: type: there is no request "dance"'],
    ['{"type":"toString","id":"1"}', 'Invalid request: type: there is no request "toString"'],
    ['{"type":"__proto__","id":"1"}', 'Invalid request: type: there is no request "__proto__"'],
    ['{"type":"Ping","id":"1"}', 'Invalid request: type: there is no request "Ping"'],
    ['{"type":"session_created","id":"1"}', 'Invalid request: type: there is no request "session_created"'],
    ['{"type":"ping"}', "Invalid request: id: is missing"],
    ['{"type":"ping","id":""}', "Invalid request: id: must not be empty"],
    ['{"type":"ping","id":7}', "Invalid request: id: Expected string, actual 7"],
    ['{"type":"ping","id":null}', "Invalid request: id: Expected string, actual null"]
  ])("%s is refused", (text, message) => {
    expect(refusal(text)).toMatchObject({ code: "bad_request", message })
  })

  it("truncates a long unknown type in its message", () => {
    expect(refusal({ type: "x".repeat(1000), id: "1" })?.message.length).toBeLessThan(120)
  })

  it.each([
    ['{"id":"7","type":"dance"}', "7"],
    ['{"id":"7"}', "7"],
    ['{"id":"7","type":"send_message"}', "7"],
    [`{"id":"7","type":"answer","answer":${nested(5000)}}`, "7"],
    ['{"id":7,"type":"dance"}', undefined],
    [`{"id":"${"7".repeat(129)}","type":"dance"}`, undefined],
    ['["7"]', undefined],
    ['{"id":"7","type":', undefined]
  ])("of %.40s the id is kept where it can be read", (text, id) => {
    expect(refusal(text)?.id).toBe(id)
  })

  it("accepts an id of 128 characters and refuses one more", () => {
    expect(refusal({ type: "ping", id: "x".repeat(128) })).toBeUndefined()
    expect(refusal({ type: "ping", id: "x".repeat(129) })?.message).toBe(
      "Invalid request: id: has 129 characters; the limit is 128"
    )
  })

  it("accepts a frame of 1 MiB and refuses one more byte", () => {
    const empty = Protocol.encode({ type: "send_message", id: "1", sessionId: "s", content: "" })
    const frame = (bytes: number) => empty.replace('""', `"${"x".repeat(bytes - empty.length)}"`)
    expect(refusal(frame(Protocol.Limits.frameBytes))).toBeUndefined()
    expect(refusal(frame(Protocol.Limits.frameBytes + 1))).toMatchObject({
      code: "too_large",
      message: "The frame has at least 1048577 bytes; the limit is 1048576"
    })
  })

  it("accepts 256 levels of JSON and refuses one more, and half a million", () => {
    expect(refusal(answerFrame(nested(256)))).toBeUndefined()
    const message = "Invalid request: the frame is nested more than 257 levels deep"
    expect(refusal(answerFrame(nested(257)))?.message).toBe(message)
    expect(refusal(answerFrame(nested(500_000)))?.message).toBe(message)
    expect(refusal(nested(500_000))?.message).toBe(message)
  })

  it("accepts 65,536 members and elements, and refuses one more without parsing it", () => {
    const { jsonMembers } = Protocol.Limits
    // In addition to the elements: the members of the frame, and one more for its opening brace and the array's opening bracket.
    const elements = (count: number) => answerFrame(`[${Array(count).fill("[]").join()}]`)
    expect(refusal(elements(jsonMembers / 2 - 4))).toBeUndefined()
    const parse = vi.spyOn(JSON, "parse")
    try {
      expect(refusal(elements(jsonMembers))).toEqual(
        expect.objectContaining({
          code: "bad_request",
          message: "Invalid request: the frame has more than 65536 members and elements"
        })
      )
      expect(refusal(answerFrame(nested(500_000)))).toBeDefined()
      expect(refusal(answerFrame('{"a":'.repeat(100_000)))).toBeDefined()
      expect(parse).not.toHaveBeenCalled()
    } finally {
      parse.mockRestore()
    }
  })

  it("refuses unpaired surrogates anywhere, and accepts pairs in any spelling", () => {
    const create = (fields: string) => `{"type":"create_session","id":"1",${fields}}`
    const cases = {
      agentType: create('"agentType":"a\\ud83d"'),
      title: create('"agentType":"a","title":"\\uDE00\\uD83D"'),
      "environment.A": create('"agentType":"a","environment":{"A":"x\\udfff"}'),
      "secrets.A": create('"agentType":"a","secrets":{"A":"s3cr3t\\ud800"}'),
      "deployment.list.1.at": create('"agentType":"a","deployment":{"list":[1,{"at":"\\ud800"}]}'),
      "deployment.\ufffd": create('"agentType":"a","deployment":{"\\ud800":1}'),
      content: '{"type":"send_message","id":"1","sessionId":"s","content":"\\ud83d \\ude00"}',
      answer: answerFrame('"\\udc00"'),
      requestId: '{"type":"answer","id":"1","sessionId":"s","requestId":"\\udc00","answer":1}',
      path: '{"type":"read_file","id":"1","sessionId":"s","path":"a/\\udc00"}',
      epoch: '{"type":"subscribe","id":"1","sessionId":"s","epoch":"\\udc00"}'
    }
    for (const [place, text] of Object.entries(cases)) {
      expect(refusal(text)).toMatchObject({
        id: "1",
        code: "bad_request",
        message: `Invalid request: ${place}: must be Unicode, and has a lone surrogate`
      })
    }
    expect(refusal('{"type":"ping","id":"\\ud800"}')?.code).toBe("bad_request")
    for (const whole of ["\\ud83d\\ude00", "\\uD83D\\uDE00", "😀", "\\\\ud83d", "\\ufffd"]) {
      expect(refusal(answerFrame(`"${whole}"`)), whole).toBeUndefined()
    }
  })

  it.each([
    ["subscribe", "untilSeq", -1, "must be a whole number from 0 on"],
    ["subscribe", "beforeSeq", 1.5, "must be a whole number"],
    ["subscribe", "afterSeq", 2 ** 53, "must be a whole number"],
    ["list_sessions", "order", "age", "must be created or activity"]
  ] as const)("%s says what %s must be", (type, name, value, message) => {
    const frame = { ...Examples.requests[type], [name]: value }
    expect(refusal(frame)?.message).toBe(`Invalid request: ${name}: ${message}`)
  })

  it("ignores unknown members", () => {
    const request = decodeRequest('{"type":"ping","id":"1","colour":"red","__proto__":{"id":"2"}}')
    expect(Either.getOrThrow(request)).toStrictEqual({ type: "ping", id: "1" })
  })

  it("keeps odd member names within values", () => {
    const request = Either.getOrThrow(decodeRequest(answerFrame('{"__proto__":1,"b":2,"1":3}')))
    expect(Protocol.encode(Schema.encodeSync(Protocol.Request)(request))).toContain('"__proto__":1')
  })

  it.each([
    [{ "": "a" }, "is not a name for a variable"],
    [{ "A=B": "a" }, "is not a name for a variable"],
    [{ "1": "a" }, "is not a name for a variable"],
    [{ A: null }, "secrets.A: must be text"],
    [{ A: { deep: "s3cr3t" } }, "secrets.A: must be text"],
    [Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`A${i}`, "a"])), "has 257 names; the limit is 256"]
  ])("secrets %.40j are refused", (secrets, message) => {
    const { message: said } = refusal({ ...Examples.requests.create_session, secrets })!
    expect(said).toContain(message)
    expect(said).not.toContain("s3cr3t")
  })

  it("refuses a variable named __proto__", () => {
    const text = '{"type":"create_session","id":"1","agentType":"a","environment":{"__proto__":"x"}}'
    expect(refusal(text)?.message).toBe("Invalid request: environment.__proto__: is not a name for a variable")
  })

  it("prints no secrets, and never repeats a frame that is not JSON", () => {
    const request = Either.getOrThrow(decodeRequest(JSON.stringify(Examples.requests.create_session)))
    expect(JSON.stringify(request)).not.toContain("a secret")
    const secrets = request.type === "create_session" ? request.secrets : undefined
    expect(Redacted.value(secrets!.GIT_TOKEN!)).toBe("a secret")
    expect(refusal('{"secrets":{"A":"s3cr3t"},')?.message).not.toContain("s3cr3t")
  })

  it("answers any text, and never throws", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: codePoint }), fc.json({ maxDepth: 5 })), text => {
        const { message } = refusal(text)!
        expect(message).toMatch(/^Invalid request: ./)
      }),
      { numRuns }
    )
  })

  it("refuses values that have no text", () => {
    for (const frame of requests) {
      for (const name of Object.keys(frame)) {
        for (const value of [[{ toString: "" }], { toString: null, valueOf: 1 }]) {
          const decoded = decodeRequest(JSON.stringify({ ...frame, [name]: value }))
          if (Either.isLeft(decoded)) expect(decoded.left.message).toMatch(/^Invalid request: .+: /s)
        }
      }
    }
  })

  it("accepts or refuses random fields of known requests, and can encode what it accepts", () => {
    const names = [...new Set(requests.flatMap(frame => Object.keys(frame)))].filter(name => name !== "type")
    const good = requests.flatMap(frame => Object.values(frame))
    const value = fc.oneof(
      fc.constantFrom<unknown>(...good),
      fc.jsonValue({ maxDepth: 4 }),
      fc.string({ unit: codePoint })
    )
    const fields = fc.dictionary(fc.oneof(fc.constantFrom(...names), fc.constant("__proto__"), fc.string()), value)
    fc.assert(
      fc.property(fc.constantFrom(...requests), fc.boolean(), fields, (frame, isFilled, fields) => {
        const given = { ...(isFilled ? frame : { type: frame.type }), ...fields, type: frame.type }
        const decoded = decodeRequest(JSON.stringify(given))
        if (Either.isLeft(decoded)) {
          // A member's name may hold anything, a colon too.
          expect(decoded.left.message).toMatch(/^Invalid request: .+: /s)
        } else {
          const again = Schema.encodeSync(Protocol.Request)(decoded.right)
          expect(JSON.parse(JSON.stringify(given))).toMatchObject(JSON.parse(JSON.stringify(again)))
        }
      }),
      { numRuns }
    )
  })
})

describe("answers and events", () => {
  it.each(answers)("answer $type survives encoding", answer => {
    const read: unknown = JSON.parse(Protocol.encode(answer))
    expect(Schema.decodeUnknownSync(Protocol.Answer)(read)).toStrictEqual(answer)
    expect(Schema.encodeSync(Protocol.Answer)(answer)).toStrictEqual(answer)
    expect(Schema.is(Protocol.Event)(read)).toBe(false)
  })

  it.each(events)("event $type survives encoding", event => {
    const read: unknown = JSON.parse(Protocol.encode(event))
    expect(Schema.decodeUnknownSync(Protocol.Event)(read)).toStrictEqual(event)
    expect(Schema.encodeSync(Protocol.Event)(event)).toStrictEqual(event)
    expect(Schema.is(Protocol.Answer)(read)).toBe(false)
  })

  it.each(["sessionId", "seq", "timestamp", "traceId"])("no event lacks %s", name => {
    for (const event of events) {
      const { [name]: _, ...rest }: Readonly<Record<string, unknown>> = { ...event }
      expect(Schema.is(Protocol.Event)(rest)).toBe(false)
    }
  })

  it("numbers events from 1", () => {
    const [first] = events
    for (const seq of [0, -1, 1.5, "1", null]) expect(Schema.is(Protocol.Event)({ ...first, seq })).toBe(false)
    expect(Schema.is(Protocol.Event)({ ...first, seq: 1 })).toBe(true)
  })

  it("has an envelope that no body can override", () => {
    const body = { ...Examples.bodies.turn_started, seq: 99, sessionId: "other" }
    expect(Protocol.event(Examples.envelope, body)).toMatchObject({ type: "turn_started", ...Examples.envelope })
  })
})

describe("errors", () => {
  it.each(Object.keys(Protocol.errorMeanings))("%s is a code of an error answer", code => {
    const known = Schema.decodeUnknownSync(Protocol.ErrorCode)(code)
    const { traceId } = Examples
    const answer = Protocol.errorAnswer({ id: "1", code: known, message: "no", traceId })
    expect(Schema.is(Protocol.Answer)(answer)).toBe(true)
    expect(answer.error.retryable).toBe(Protocol.errorMeanings[known].retryable)
    expect(Protocol.errorAnswer({ id: undefined, code: known, message: "no", traceId })).not.toHaveProperty("id")
  })

  it("may be retryable although the code usually is not", () => {
    const { traceId } = Examples
    const failure = { id: "1", code: "upstream_error", message: "no", traceId } as const
    expect(Protocol.errorAnswer(failure).error.retryable).toBe(false)
    expect(Protocol.errorAnswer({ ...failure, retryable: true }).error.retryable).toBe(true)
  })
})

describe("close codes", () => {
  it("are those of the design", () => {
    const codes = Object.values(Protocol.closeCodes).map(({ code, name }) => [code, name])
    expect(codes).toStrictEqual([
      [1001, "going_away"],
      [1002, "protocol_error"],
      [1007, "invalid_utf8"],
      [1008, "too_many_fragments"],
      [1009, "message_too_big"],
      [4001, "rate_limited"],
      [4008, "slow_consumer"],
      [4009, "idle"],
      [4011, "message_timeout"],
      [4501, "token_expired"],
      [4502, "protocol"]
    ])
  })

  it("say whether to reconnect, in accordance with their ranges", () => {
    for (const { code, reconnect } of Object.values(Protocol.closeCodes)) {
      expect(Protocol.shouldReconnect(code)).toBe(reconnect)
    }
    for (const code of [1000, 1006, 1011, 1012, 4000, 4499]) expect(Protocol.shouldReconnect(code)).toBe(true)
    for (const code of [1002, 1007, 4500, 4999]) expect(Protocol.shouldReconnect(code)).toBe(false)
  })
})
