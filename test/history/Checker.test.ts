/** The checker accepts the histories of a correct store, and finds the errors of a wrong one. */

import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { times } from "../Scale.ts"
import { check } from "./Checker.ts"
import * as H from "./History.ts"
import { mutate, mutations } from "./Mutations.ts"
import * as Simulation from "./model/Simulation.ts"
import type { Mutation, Which } from "./mutations/MutableHistory.ts"
import * as Workload from "./Workload.ts"

/** fast-check prints the seed of a failure; HISTORY_SEED has it again. */
const seed = process.env.HISTORY_SEED
const parameters = { numRuns: times(100), ...(seed === undefined ? {} : { seed: Number(seed) }) }

describe("the checker", () => {
  for (const [what, histories] of [
    ["a correct store", Simulation.histories],
    ["a correct store that is restored to an earlier state with a new epoch", Simulation.restored]
  ] as const) {
    it(`finds nothing in histories of ${what}`, () => {
      fc.assert(
        fc.property(histories, history => assert.deepStrictEqual(check(history), [])),
        parameters
      )
    })
  }

  it("finds the same in a file as in the history that was written to it", () => {
    fc.assert(
      fc.property(Simulation.histories, history => {
        assert.deepStrictEqual(H.parse([...H.lines(history)].join("\n")), history)
      }),
      { ...parameters, numRuns: 10 }
    )
  })

  it("lets an entry expire in the batch that sets it, if that waited for so long", () => {
    const address = { namespace: "n", key: "k" }
    const history = (ttlMs: number): H.History => {
      const changes = [1, 2].map(seq => ({
        ...{ seq, op: "set" as const, ...address, value: seq, version: seq },
        ...{ actor: "a", timestamp: 1100, tenantId: "" }
      }))
      const operations = [
        { op: "set" as const, ...address, value: 1, ttlMs },
        { op: "set" as const, ...address, value: 2, ifVersion: 0 }
      ]
      const write: H.Action = { type: "write", by: "batch", actor: "a", operations }
      const poll: H.Action = { type: "poll", follower: "f", after: 0, limit: 10, wait: 0 }
      const results = [{ version: 1 }, { version: 2 }]
      return {
        header: { type: "history", version: 1, seed: "", clockError: 0 },
        events: [
          { type: "invoke", id: 1, client: "c", node: "n", action: write, time: 1, wall: 1000 },
          { type: "ok", id: 1, result: { results }, time: 2, wall: 1100 },
          { type: "invoke", id: 2, client: "c", node: "n", action: poll, time: 3, wall: 1100 },
          { type: "ok", id: 2, result: { changes, lastSeq: 2 }, time: 4, wall: 1100 },
          { type: "end", time: 5, wall: 1100 }
        ]
      }
    }
    assert.deepStrictEqual(check(history(100)), [])
    assert.deepStrictEqual(
      check(history(101)).map(({ rule }) => rule),
      ["chain"]
    )
  })

  /** Requires that a mutation is found in all histories to which it can be applied. */
  const finds = (mutation: Mutation, histories: fc.Arbitrary<H.History>, which: Which, epochs: number) => {
    let found = 0
    // One history in twenty has what the rarest of them needs.
    for (let round = 0; found === 0 && round < 1000; round++) {
      fc.assert(
        fc.property(histories, fc.nat(), (history, random) => {
          if (Workload.epochs(history).size < epochs) return
          const mutated = mutate(mutation, history, random, which)
          // A short history may have nothing to do it to.
          if (mutated === undefined) return
          found++
          const violations = check(mutated.history).filter(({ rule }) => rule === mutation.rule)
          const isNamed = ({ message, operations }: (typeof violations)[number]) =>
            mutated.names.some(name => (typeof name === "number" ? operations.includes(name) : message.includes(name)))
          assert.isTrue(violations.some(isNamed), JSON.stringify(check(mutated.history)))
        }),
        { ...parameters, ...(seed === undefined ? {} : { seed: Number(seed) + round }), numRuns: times(8) }
      )
    }
    assert.isAbove(found, 0)
  }

  for (const mutation of mutations) {
    if (!mutation.isOfEpochs) {
      it(`finds by the rule "${mutation.rule}" that ${mutation.name}`, () => {
        finds(mutation, Simulation.histories, "last", 1)
      })
    }
    it(`finds by the rule "${mutation.rule}", in the second epoch of two, that ${mutation.name}`, () => {
      finds(mutation, Simulation.restored, "last", 2)
    })
    if (mutation.isForm) {
      it(`finds by the rule "${mutation.rule}", in the first epoch of two, that ${mutation.name}`, () => {
        finds(mutation, Simulation.restored, "first", 2)
      })
    }
  }
})
