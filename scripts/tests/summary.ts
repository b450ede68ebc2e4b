/**
 * Prints the failures of all test runs whose reports are in TEST_REPORTS, because sometimes only the end of a log is
 * kept, and the skipped tests. It fails if a test was skipped that the machine should have run: missing programs must not
 * go unnoticed. ALLOW_SKIPPED_TESTS=true allows it.
 */
import { outcomesIn } from "./Run.ts"

/** Container images cannot be built where tests run. */
const isExpected = (name: string): boolean => name.includes("skipped: no engine for containers")

const outcomes = outcomesIn(process.env.TEST_REPORTS ?? "")
const having = (status: string) => outcomes.filter(outcome => outcome.status === status)

for (const { message, name } of having("failed")) console.log(`Failed: ${name}\n${message.slice(0, 4000)}`)
const skipped = outcomes.filter(({ name, status }) => !["passed", "failed"].includes(status) && !isExpected(name))
for (const { name } of skipped) console.log(`Skipped: ${name}`)
console.log(`${having("passed").length} passed, ${having("failed").length} failed, ${skipped.length} skipped`)
if (skipped.length > 0 && process.env.ALLOW_SKIPPED_TESTS !== "true") process.exitCode = 1
