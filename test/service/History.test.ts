import { assert, describe, it } from "@effect/vitest"
import type { Change, Entry } from "../../src/Kv/Api.ts"
import { contradictions, History } from "./History.ts"

type Record = typeof Change.Type

const at = { namespace: "n", tenantId: "", timestamp: 7 }

/** An acknowledged batch of two, an acknowledged delete, and a set with an unknown outcome. */
const history = (): History => {
  const history = new History()
  history.send("batch", [
    { op: "set", namespace: "n", key: "a", value: 1 },
    { op: "set", namespace: "n", key: "b", value: 2 }
  ])
  history.acknowledge("batch", [{ version: 1 }, { version: 1 }])
  history.send("delete", [{ op: "delete", namespace: "n", key: "a" }])
  history.acknowledge("delete", [{ deleted: true }])
  history.send("in-vain", [{ op: "delete", namespace: "n", key: "z" }])
  history.acknowledge("in-vain", [{ deleted: false }])
  history.send("unknown", [{ op: "set", namespace: "n", key: "b", value: 3 }])
  return history
}

const a1: Record = { ...at, seq: 1, op: "set", key: "a", value: 1, version: 1, actor: "batch" }
const b1: Record = { ...at, seq: 2, op: "set", key: "b", value: 2, version: 1, actor: "batch" }
const a2: Record = { ...at, seq: 3, op: "delete", key: "a", value: null, version: 2, actor: "delete" }
const b2: Record = { ...at, seq: 4, op: "set", key: "b", value: 3, version: 2, actor: "unknown" }

const entry = { namespace: "n", key: "b", value: 2, version: 1, updatedBy: "batch", updatedAt: 7, expiresAt: null }
const later = { ...entry, value: 3, version: 2, updatedBy: "unknown" }

const found = (log: ReadonlyArray<Record>, entries: ReadonlyArray<typeof Entry.Type>) =>
  contradictions(history(), log, entries).join("\n")

describe("the contradictions between a history and a service", () => {
  it("are none in a complete log, with or without writes of unknown outcome", () => {
    assert.strictEqual(found([a1, b1, a2], [entry]), "")
    assert.strictEqual(found([a1, b1, a2, b2], [later]), "")
  })

  it("are found where an acknowledged write is missing", () => {
    assert.include(found([a1, b1], [{ ...entry, key: "a", value: 1 }, entry]), "delete was acknowledged")
  })

  it("are found where a batch is half there, or in two pieces", () => {
    assert.include(found([a1, { ...a2, seq: 2 }], []), "batch has 1 records at seq 1")
    assert.include(found([a1, { ...a2, seq: 2 }, { ...b1, seq: 3 }], [entry]), "batch comes up again at seq 3")
  })

  it("are found where seq has a hole, or time falls", () => {
    assert.include(found([a1, b1, { ...a2, seq: 4 }], [entry]), "seq 4 is at the position of 3")
    assert.include(found([a1, b1, { ...a2, timestamp: 6 }], [entry]), "time falls at seq 3")
  })

  it("are found where a version goes back, a value is another's or the answer was another", () => {
    assert.include(found([a1, b1, { ...a2, version: 1 }], [entry]), "delete has 1 records at seq 3")
    assert.include(found([a1, { ...b1, value: 9 }, a2], [entry]), "batch has 2 records at seq 1")
    const answered = history()
    answered.acknowledge("delete", [{ deleted: false }])
    assert.include(contradictions(answered, [a1, b1, a2], [entry]).join(), "delete was answered")
  })

  it("are found for writes of an unknown writer", () => {
    assert.include(found([a1, b1, a2, { ...b2, actor: "stranger" }], [later]), "of stranger, who wrote nothing")
  })

  it("are found where the list is not what the log comes to", () => {
    assert.include(found([a1, b1, a2], []), "the log comes to")
    assert.include(found([a1, b1, a2], [entry, { ...entry, key: "a" }]), "the log comes to null")
    assert.include(found([a1, b1, a2], [entry, entry]), "an entry twice")
    assert.include(found([a1, b1, a2], [{ ...entry, version: 2 }]), "the log comes to")
  })
})
