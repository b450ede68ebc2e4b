/** Checks a recorded history again: `tsx scripts/check-history.ts FILE`, with the FILE of a failed test. */
import { readFileSync } from "node:fs"
import { check, counts } from "../test/history/Checker.ts"
import { parse } from "../test/history/History.ts"

const [file, ...others] = process.argv.slice(2)
if (file === undefined || others.length > 0) {
  console.error("Usage: npm run check:history -- FILE")
  process.exit(2)
}
try {
  const history = parse(readFileSync(file, "utf8"))
  const violations = check(history)
  for (const { message, rule } of violations) console.log(`${rule}: ${message}`)
  console.log(`${violations.length} violations in ${JSON.stringify(counts(history))}`)
  process.exitCode = violations.length === 0 ? 0 : 1
} catch (error) {
  console.error(error instanceof Error ? `${file}: ${error.message}` : error)
  process.exitCode = 2
}
