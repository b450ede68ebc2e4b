/** Finds arguments that are not UTF-8. Node replaces their invalid bytes, so that different arguments become equal. */
import { readFileSync } from "node:fs"
import { Effect, Either, Option } from "effect"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import * as Utf8 from "./Terminal/Utf8.ts"

const replacement = "\ufffd"

/** The arguments of a process as bytes, from the content of `/proc/<pid>/cmdline`: each ends with U+0000. */
const split = (commandLine: Uint8Array): ReadonlyArray<Uint8Array> => {
  const found: Array<Uint8Array> = []
  for (let from = 0; from < commandLine.length; ) {
    const end = commandLine.indexOf(0, from)
    found.push(commandLine.subarray(from, end === -1 ? commandLine.length : end))
    if (end === -1) break
    from = end + 1
  }
  return found
}

/** The first argument that is not UTF-8, as Node decodes it. `commandLine` ends with the arguments as bytes. */
export const invalidIn = (args: ReadonlyArray<string>, commandLine: Uint8Array): string | undefined => {
  const raw = args.length === 0 ? [] : split(commandLine).slice(-args.length)
  return args.find((argument, index) => {
    const bytes = raw[index]
    return argument.includes(replacement) && bytes !== undefined && Either.isLeft(Utf8.decode(bytes))
  })
}

const readCommandLine = Option.liftThrowable(() => readFileSync("/proc/self/cmdline"))

/** Fails if an argument of this process is not UTF-8. Systems without `/proc` cannot be checked. */
export const check = (args: ReadonlyArray<string>): Effect.Effect<void, CommandFailed> =>
  Effect.suspend(() => {
    if (!args.some(argument => argument.includes(replacement))) return Effect.void
    const invalid = Option.flatMapNullable(readCommandLine(), commandLine => invalidIn(args, commandLine))
    return Option.match(invalid, {
      onNone: () => Effect.void,
      onSome: argument => wrong(`The argument ${JSON.stringify(argument)} is not UTF-8`)
    })
  })
