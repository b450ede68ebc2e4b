/** Hostile clients of each kind together with honest ones: memory stays bounded, and honest clients get answers. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { afterAll, beforeAll } from "vitest"
import { makeClient, makeSessions } from "../src/exports/client.ts"
import { attacks } from "./hostile/Attacks.ts"
import * as Honest from "./hostile/Honest.ts"
import { enemy, start, type Target } from "./hostile/Target.ts"
import { keys } from "./hostile/Wire.ts"
import { isLong, isSoak, times } from "./Scale.ts"

/**
 * MiB that the process may come to: what it takes by itself under load, its budget of unsent bytes, and room for the
 * collector. Whole lists leave the most garbage because each is printed again for each client. Without the budget,
 * clients that do not read bring it well beyond that.
 */
const boundOf = (attack: string): number => (attack.startsWith("whole lists") ? 1300 : 750)

const clients = 3
const rounds = times(4)

/** The attacks of the soak, where clients that do not read would fill more than the bound without a budget. */
const strength = isSoak ? 4 : isLong ? 1 : 0.5

const scope = Effect.runSync(Scope.make())
let target: Target
let order: Effect.Effect.Success<typeof enemy>

/** Twenty entries of 512 KiB, which no page holds all of, and sessions to be listed. */
const fill = async ({ url }: Target) => {
  const client = makeClient({ baseUrl: url, token: keys.write })
  for (let index = 0; index < 20; index++) await client.set("big", `k${index}`, "漢".repeat(170_000))
  const sessions = makeSessions({ baseUrl: url })
  for (let index = 0; index < 20; index++) await sessions.create("echo")
  sessions.close()
}

beforeAll(async () => {
  target = await Effect.runPromise(Scope.extend(start, scope))
  order = await Effect.runPromise(Scope.extend(enemy, scope))
  await fill(target)
})

afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

describe.runIf(process.platform === "linux")("honest clients are answered, and memory stays bounded, with", () => {
  // In its tests each part resists the attacks that concern it; these are all of them against a whole service.
  const chosen = Object.keys(attacks).filter((_, index) => isLong || index % 9 === 0)
  for (const attack of chosen) {
    it(attack, async () => {
      target.forgetPeak()
      await order({ attack, port: target.port, strength })
      const outcome = await Honest.work(target, clients, rounds)
      const peak = Math.round(target.peak())
      await order("end")
      if (isSoak) {
        console.log(`${attack}: p99 ${Honest.p99(outcome).toFixed(1)} ms, peak ${peak} MiB`)
      }
      expect(outcome.failures).toEqual([])
      expect(peak).toBeLessThan(boundOf(attack))
      expect(target.isAlive()).toBe(true)
    })
  }
})
