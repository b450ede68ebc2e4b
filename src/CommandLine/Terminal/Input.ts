/** Standard input of a command. */
import { Effect } from "effect"
import { Output } from "./Output.ts"

/** Notes on a terminal that the command waits for the user. */
export const noteReading: Effect.Effect<void, never, Output> = Effect.flatMap(Output, ({ note }) =>
  process.stdin.isTTY ? note("Reading standard input; Ctrl-D ends it.") : Effect.void
)
