/** Runs the commands of a page in a shell on a terminal, as a reader does, against the service that the page starts. */
import { type ChildProcess, spawn } from "node:child_process"
import { chmodSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { stripVTControlCharacters } from "node:util"
import { Effect, Option, type Scope } from "effect"
import { assert } from "vitest"
import { freePort } from "../postgres/Server.ts"
import { environment, program } from "../service/Compiled.ts"
import { isExcused } from "./Excuses.ts"
import { type Fence, fencesOf } from "./Page.ts"

/** Commands of a page. */
export interface Block {
  readonly code: string
  /** Whether they run until the reader stops them: the fence says `sh background`. */
  readonly isBackground: boolean
  /** What the page says that they print: the next fence, if that is `text` or `json`. */
  readonly printed: { readonly language: string; readonly text: string } | undefined
}

/** Whether a block is what the commands before it print. */
export const isOutput = (fence: Fence | undefined): fence is Fence =>
  fence?.language === "text" || fence?.language === "json"

/** The commands in blocks, except those that have an excuse. */
export const blocksIn = (fences: ReadonlyArray<Fence>): ReadonlyArray<Block> =>
  fences.flatMap((fence, index) => {
    if (fence.language !== "sh" || isExcused(fence)) return []
    const next = fences[index + 1]
    const isBackground = fence.info === "background"
    // Commands that run until they are stopped have no other visible effect.
    if (isBackground && !isOutput(next)) {
      throw new Error(`${fence.page}: the page does not say what the commands of line ${fence.line} print`)
    }
    return [
      {
        code: fence.code,
        isBackground,
        printed: isOutput(next) ? { language: next.language, text: next.code } : undefined
      }
    ]
  })

/** The commands of a page under `docs/`, or of `README.md`, except those that have an excuse. */
export const blocksOf = (page: string): ReadonlyArray<Block> => blocksIn(fencesOf(page))

/** Times and ports differ from run to run. */
const comparable = (json: unknown): unknown =>
  JSON.parse(JSON.stringify(json, (_, value) => (typeof value === "number" && value > 1e12 ? "a time" : value)))

const linesOf = (text: string): ReadonlyArray<string> =>
  text
    .split("\n")
    .map(line => line.trim())
    .filter(line => line !== "")

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")

/** Whether `output` has these lines in this order, each whole; `…` stands for anything in a line. */
export const hasLines = (output: string, text: string): boolean =>
  new RegExp(
    linesOf(text)
      .map(line => `^[ \\t]*${line.split("…").map(escaped).join(".*")}[ \\t]*$`)
      .join("[^]*"),
    "m"
  ).test(output)

/**
 * What can be read on a terminal that was sent this: without colors, and of lines that were overwritten the last text.
 */
export const readable = (output: string): string =>
  stripVTControlCharacters(output)
    .split("\n")
    .map(line => line.replace(/\r+$/, "").split("\r").at(-1))
    .join("\n")

const check = (output: string, { language, text }: NonNullable<Block["printed"]>): void => {
  if (language === "json") assert.deepEqual(comparable(JSON.parse(output)), comparable(JSON.parse(text)))
  else assert.isTrue(hasLines(output, text), `expected ${text} in ${output.slice(0, 2000)}`)
}

/** The settings of one shell in addition to those of all. */
export interface Setting {
  readonly env?: Readonly<Record<string, string>>
  /** What stands for addresses of the page. */
  readonly placed?: Readonly<Record<string, string>>
}

interface Shell {
  /** Runs commands to their end, or starts them if they run in the background. */
  readonly run: (block: Block) => Effect.Effect<void, never, Scope.Scope>
}

/**
 * What runs a shell on a pseudo-terminal of its own, by `script` of util-linux, as commands print other things in a
 * pipe. It prints the id of the process, which is also that of the group of its child processes.
 */
const onTerminal = 'stty rows 24 cols 80; echo $$ > "$PROCESS_FILE"; exec bash -euo pipefail -c "$COMMANDS"'

/**
 * A shell in an empty directory, in which `npm`, `npx causewayd` and `causeway` are those of this repository, and port
 * 8080 of the page is another one. After `npm ci` the directory is a checkout, which has no program `causeway` before
 * it is built: commands that need one fail, as they do for a reader. Whatever runs in the background ends with the
 * scope.
 */
export const shell = (directory: string, { env = {}, placed = {} }: Setting = {}): Effect.Effect<Shell> =>
  Effect.gen(function* () {
    const port = yield* Effect.promise(freePort)
    const service = `exec "${process.execPath}" "${program("main")}"`
    const checkout = join(directory, ".checkout")
    const installed = `if [ -e "${checkout}" ]; then echo "causeway: not found" >&2; exit 127; fi`
    const programs = {
      npm: [
        'case "$*" in',
        `ci) touch "${checkout}" ;;`,
        `"run dev") DEV_MODE=true ${service} ;;`,
        // test/Package builds the package, and starts it.
        `"run build") ;;`,
        `start) ${service} ;;`,
        `"run causeway -- "*) shift 3; ${service} "$@" ;;`,
        `"run --silent causeway -- "*) shift 4; ${service} "$@" ;;`,
        '*) echo "npm $*?" >&2; exit 1 ;;',
        "esac"
      ].join("\n"),
      npx: `${installed}\nshift; ${service} "$@"`,
      causeway: `${installed}\n${service} "$@"`
    }
    for (const [name, script] of Object.entries(programs)) {
      const file = join(directory, name)
      writeFileSync(file, `#!/bin/sh\n${script}\n`)
      chmodSync(file, 0o755)
    }
    const places = Object.entries({ "127.0.0.1:8080": `127.0.0.1:${port}`, ...placed })
    const ported = (text: string): string => places.reduce((text, [from, to]) => text.replaceAll(from, to), text)
    let started = 0
    const start = (code: string) => {
      const processFile = join(directory, `.process-${++started}`)
      const child = spawn("script", ["-qefc", onTerminal, "/dev/null"], {
        cwd: directory,
        env: {
          COMMANDS: ported(code),
          PROCESS_FILE: processFile,
          SHELL: "/bin/sh",
          TERM: "xterm",
          PATH: `${directory}:${process.env.PATH}`,
          HOME: directory,
          PORT: String(port),
          CAUSEWAY_URL: ported("http://127.0.0.1:8080"),
          BASE: ported("http://127.0.0.1:8080"),
          KEY: "dev-key",
          ...environment(),
          ...env
        },
        // Whatever is started has the fourth, so that it is closed once all of it has ended.
        stdio: ["pipe", "pipe", "pipe", "pipe"]
      })
      const kill = () => {
        try {
          process.kill(-Number.parseInt(readFileSync(processFile, "utf8"), 10), "SIGKILL")
        } catch {
          // The shell has not begun, or has ended.
          child.kill("SIGKILL")
        }
      }
      return { child, kill }
    }
    const outputOf = (child: ChildProcess) => {
      const output = { text: "" }
      for (const stream of [child.stdout, child.stderr]) {
        stream?.setEncoding("utf8").on("data", chunk => {
          output.text += chunk
        })
      }
      return output
    }
    const toEnd = ({ code, printed }: Block) =>
      Effect.async<void>(resume => {
        // A refusal that no page mentions must fail the test: curl succeeds with any status.
        const { child } = start(
          printed === undefined ? `curl() { command curl --fail-with-body "$@"; }\n${code}` : code
        )
        const output = outputOf(child)
        child.once("close", status => {
          resume(
            Effect.sync(() => {
              assert.strictEqual(status, 0, `${code}\n${output.text}`)
              if (printed !== undefined) check(readable(output.text), printed)
            })
          )
        })
      })
    const inBackground = ({ code, printed }: Block) =>
      Effect.gen(function* () {
        const { child } = yield* Effect.acquireRelease(
          Effect.sync(() => start(code)),
          ({ child, kill }) =>
            Effect.async<void>(resume => {
              if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
              // What it has open is free for the next commands once all of the group has ended.
              child.once("close", () => resume(Effect.void))
              kill()
            })
        )
        const output = outputOf(child)
        if (printed === undefined) return
        yield* Effect.async<void>(resume => {
          const look = () => {
            if (hasLines(readable(output.text), ported(printed.text))) resume(Effect.void)
          }
          child.stdout?.on("data", look)
          child.stderr?.on("data", look)
          child.once("close", () => resume(Effect.dieMessage(`${code} ended: ${output.text}`)))
        }).pipe(
          Effect.timeoutOption("150 seconds"),
          Effect.filterOrElse(Option.isSome, () =>
            Effect.dieMessage(`${code} did not print ${printed.text} but ${output.text}`)
          )
        )
      })
    return { run: block => (block.isBackground ? inBackground(block) : toEnd(block)) }
  })
