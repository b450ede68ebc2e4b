/** Places of stores, and copies that are refused. */
import { expect } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import * as StoreCopy from "../../../src/Storage/StoreCopy.ts"

export const files = (directory: string): StoreCopy.Location => ({ directory, postgres: Option.none() })

export const database = (url: string): StoreCopy.Location => ({
  directory: "",
  postgres: Option.some({ url: Redacted.make(url), directUrl: Option.none(), connections: 1 })
})

/** Why a copy is refused. */
export const refusal = <A>(copying: Effect.Effect<A, StoreCopy.StoreCopyRefused | StoreCopy.StoreCopyFailed>) =>
  Effect.map(Effect.flip(copying), error => {
    expect(error).toBeInstanceOf(StoreCopy.StoreCopyRefused)
    return error.message
  })
