import { expect, it } from "@effect/vitest"
import { migrations } from "../../../src/Storage/Postgres/Schema.ts"

// A database knows the steps that it has taken by their numbers: they are only ever added, at the end.
it("the steps of the schema keep their order", () => {
  expect(migrations.map(({ name }) => name)).toEqual([
    "initial",
    "sessions",
    "addresses of nodes",
    "namespaces",
    "removals",
    "timelines",
    "functions without compilation",
    "counted renewals",
    "remembered writes",
    "lock waits",
    "lock waits with idempotency keys",
    "lengths of leases",
    "epochs of histories",
    "shares of remembered writes",
    "keys of refused writes",
    "tenants"
  ])
})
