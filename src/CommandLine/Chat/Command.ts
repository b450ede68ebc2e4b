/** Parses lines of input. */
import { Either, Schema } from "effect"
import { cleanName } from "../Terminal/Text.ts"

/** A line that starts with a colon, or a message. */
export type Command =
  | { readonly do: "nothing" | "sessions" | "stop" | "start" | "interrupt" | "help" }
  | { readonly do: "quit" }
  | { readonly do: "files"; readonly path: string | undefined }
  | { readonly do: "read" | "history"; readonly path: string }
  | { readonly do: "at"; readonly path: string; readonly iteration: number }
  | { readonly do: "say"; readonly content: string }

/** An invalid command; the message says what is wrong. */
export class WrongCommand extends Schema.TaggedError<WrongCommand>()("WrongCommand", { message: Schema.String }) {}

/** The commands, as `:help` lists them. */
export const commands: Readonly<Record<string, string>> = {
  ":files [path]": "lists the files of the agent's workspace",
  ":read <path>": "prints a file",
  ":history <path>": "lists the iterations of a file",
  ":at <path> <iteration>": "prints a file as it was at an iteration",
  ":sessions": "lists your sessions",
  ":start": "starts the agent",
  ":stop": "stops the agent",
  ":interrupt": "interrupts the turn",
  ":quit": "ends the client; the session stays",
  ":help": "lists the commands"
}

/** The text of `:help`. */
export const help: string = [
  ...Object.entries(commands).map(([usage, meaning]) => `${usage.padEnd(26)}${meaning}`),
  `${"anything else".padEnd(26)}is sent to the agent, or answers its question; two colons send one`
].join("\n")

const refuse = (message: string) => Either.left(new WrongCommand({ message: `${message} :help lists all commands.` }))

/** Parses a line. Two colons at the start stand for a message that starts with one. */
export const parse = (line: string): Either.Either<Command, WrongCommand> => {
  if (line.trim() === "") return Either.right({ do: "nothing" })
  if (line.startsWith("::")) return Either.right({ do: "say", content: line.slice(1) })
  if (!line.startsWith(":")) return Either.right({ do: "say", content: line })
  const [, name = "", argument = ""] = /^:(\S*)\s*(.*?)\s*$/u.exec(line) ?? []
  switch (name) {
    case "sessions":
    case "stop":
    case "start":
    case "interrupt":
    case "quit":
    case "help":
      return argument === "" ? Either.right({ do: name }) : refuse(`:${name} takes no argument.`)
    case "files":
      return Either.right({ do: "files", path: argument === "" ? undefined : argument })
    case "read":
    case "history":
      return argument === "" ? refuse(`:${name} needs a path.`) : Either.right({ do: name, path: argument })
    case "at": {
      const [, path, iteration] = /^(.*\S)\s+(\d{1,15})$/u.exec(argument) ?? []
      return path === undefined
        ? refuse(":at needs a path and the number of an iteration.")
        : Either.right({ do: "at", path, iteration: Number(iteration) })
    }
    default:
      return refuse(`There is no command :${cleanName(name)}.`)
  }
}
