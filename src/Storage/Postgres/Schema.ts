/**
 * The steps of the schema of the store in PostgreSQL, which is the schema `causeway` of the database.
 *
 * `Migrations` has one file for each step. A file `*.sql.ts` has the current text of functions, whole, for the step
 * that made them. To change a function: move the current text into the file of that step, and let a new step import the
 * new one.
 */
import { statements as initial } from "./Migrations/01-initial.ts"
import { statements as sessions } from "./Migrations/02-sessions.ts"
import { statements as addressesOfNodes } from "./Migrations/03-addresses-of-nodes.ts"
import { statements as namespaces } from "./Migrations/04-namespaces.ts"
import { statements as removals } from "./Migrations/05-removals.ts"
import { statements as timelines } from "./Migrations/06-timelines.ts"
import { statements as functionsWithoutCompilation } from "./Migrations/07-functions-without-compilation.ts"
import { statements as countedRenewals } from "./Migrations/08-counted-renewals.ts"
import { statements as rememberedWrites } from "./Migrations/09-remembered-writes.ts"
import { statements as lockWaits } from "./Migrations/10-lock-waits.ts"
import { statements as lockWaitsWithIdempotencyKeys } from "./Migrations/11-lock-waits-with-idempotency-keys.ts"
import { statements as lengthsOfLeases } from "./Migrations/12-lengths-of-leases.ts"
import { statements as epochsOfHistories } from "./Migrations/13-epochs-of-histories.ts"
import { statements as sharesOfRememberedWrites } from "./Migrations/14-shares-of-remembered-writes.ts"
import { statements as keysOfRefusedWrites } from "./Migrations/15-keys-of-refused-writes.ts"
import { statements as tenants } from "./Migrations/16-tenants.ts"
import { statements as lookingUpWhatIsCounted } from "./Migrations/17-looking-up-what-is-counted.ts"
import { statements as positionOfExpiry } from "./Migrations/18-position-of-expiry.ts"
import { statements as changesOfCounts } from "./Migrations/19-changes-of-counts.ts"
import { statements as lookupsOfCommits } from "./Migrations/20-lookups-of-commits.ts"
import { statements as agesOfCommits } from "./Migrations/21-ages-of-commits.ts"
import { statements as totalsOfTenants } from "./Migrations/22-totals-of-tenants.ts"
import { statements as startsOfRemovals } from "./Migrations/23-starts-of-removals.ts"

/** One step of the schema: statements that are executed once, in one transaction with the record of the step. */
export interface Migration {
  readonly name: string
  readonly statements: ReadonlyArray<string>
  /** The tables of earlier steps that it locks against writes, or also against reads. */
  readonly locks?: Readonly<
    Partial<Record<Lockable, "SHARE" | "SHARE ROW EXCLUSIVE" | "EXCLUSIVE" | "ACCESS EXCLUSIVE">>
  >
}

/**
 * The tables that steps lock, in the order of the locks. Writers of entries lock `log` before the others, writers of
 * sessions lock `histories` before `nodes`, and both write to `commits` last.
 */
export const lockable = [
  "log",
  "entries",
  "namespaces",
  "tenants",
  "remembered_writes",
  "remembered_tenants",
  "histories",
  "nodes",
  "commits"
] as const

/** A table that a migration may lock. */
export type Lockable = (typeof lockable)[number]

/** The maximum bytes of a namespace and a key together: those of an index row, 2,704, without its header. */
export const maxNameBytes = 2660

/** All steps, in order. A released step never changes: test/golden/migrations.json pins what each executes. */
export const migrations: ReadonlyArray<Migration> = [
  { name: "initial", statements: initial },
  { name: "sessions", statements: sessions },
  { name: "addresses of nodes", statements: addressesOfNodes, locks: { nodes: "ACCESS EXCLUSIVE" } },
  { name: "namespaces", statements: namespaces, locks: { entries: "SHARE ROW EXCLUSIVE" } },
  { name: "removals", statements: removals },
  { name: "timelines", statements: timelines, locks: { log: "ACCESS EXCLUSIVE" } },
  { name: "functions without compilation", statements: functionsWithoutCompilation },
  { name: "counted renewals", statements: countedRenewals, locks: { nodes: "ACCESS EXCLUSIVE" } },
  { name: "remembered writes", statements: rememberedWrites },
  { name: "lock waits", statements: lockWaits },
  { name: "lock waits with idempotency keys", statements: lockWaitsWithIdempotencyKeys },
  { name: "lengths of leases", statements: lengthsOfLeases, locks: { nodes: "ACCESS EXCLUSIVE" } },
  { name: "epochs of histories", statements: epochsOfHistories, locks: { histories: "ACCESS EXCLUSIVE" } },
  {
    name: "shares of remembered writes",
    statements: sharesOfRememberedWrites,
    locks: { remembered_writes: "ACCESS EXCLUSIVE" }
  },
  { name: "keys of refused writes", statements: keysOfRefusedWrites },
  { name: "tenants", statements: tenants, locks: { entries: "SHARE ROW EXCLUSIVE" } },
  { name: "looking up what is counted", statements: lookingUpWhatIsCounted },
  { name: "position of expiry", statements: positionOfExpiry, locks: { entries: "SHARE ROW EXCLUSIVE" } },
  {
    name: "changes of counts",
    statements: changesOfCounts,
    locks: { entries: "SHARE ROW EXCLUSIVE", namespaces: "ACCESS EXCLUSIVE", tenants: "ACCESS EXCLUSIVE" }
  },
  { name: "lookups of commits", statements: lookupsOfCommits },
  { name: "ages of commits", statements: agesOfCommits, locks: { commits: "SHARE" } },
  {
    name: "totals of tenants",
    statements: totalsOfTenants,
    locks: { log: "EXCLUSIVE", remembered_tenants: "ACCESS EXCLUSIVE" }
  },
  { name: "starts of removals", statements: startsOfRemovals }
]
