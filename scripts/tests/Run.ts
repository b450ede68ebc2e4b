/** Starts the commands of test runs, and reads what vitest reports. */
import { spawn } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("../..", import.meta.url))

/** Runs a command in the directory of the project, with its output on that of this process; whether it ended with 0. */
export const succeeds = (
  command: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
): Promise<boolean> =>
  new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, stdio: "inherit", env: { ...process.env, ...env } })
    child.once("error", reject)
    child.once("exit", code => resolve(code === 0))
  })

/** Runs test files by a configuration of vitest, on a Node. */
export const vitest = (
  configuration: "vitest" | "vitest.system",
  files: ReadonlyArray<string>,
  {
    env = {},
    node = process.execPath
  }: { readonly env?: Readonly<Record<string, string>>; readonly node?: string } = {}
): Promise<boolean> =>
  succeeds(
    node,
    [
      join(root, "node_modules/vitest/vitest.mjs"),
      "run",
      "--config",
      `scripts/tests/${configuration}.config.ts`,
      ...files
    ],
    env
  )

/** What a report of vitest in JSON says of one test, or of a file that could not be loaded. */
export interface Outcome {
  readonly name: string
  readonly status: string
  readonly message: string
}

interface Report {
  readonly testResults: ReadonlyArray<{
    readonly name: string
    readonly status: string
    readonly message: string
    readonly assertionResults: ReadonlyArray<{
      readonly fullName: string
      readonly status: string
      readonly failureMessages: ReadonlyArray<string>
    }>
  }>
}

const outcomesOf = ({ testResults }: Report): ReadonlyArray<Outcome> =>
  testResults.flatMap(({ assertionResults, message, name, status }) => {
    const file = name.replace(root, "")
    const tests = assertionResults.map(test => ({
      name: `${file} > ${test.fullName}`,
      status: test.status,
      message: test.failureMessages.join("\n")
    }))
    const isOfFile = status === "failed" && !tests.some(test => test.status === "failed")
    return isOfFile ? [...tests, { name: file, status, message }] : tests
  })

/** The outcomes in all reports of a directory. */
export const outcomesIn = (directory: string): ReadonlyArray<Outcome> =>
  readdirSync(directory).flatMap(name => outcomesOf(JSON.parse(readFileSync(join(directory, name), "utf8"))))
