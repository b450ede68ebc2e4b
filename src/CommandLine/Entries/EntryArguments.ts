/** Arguments that several commands for entries take. */
import { Effect, Option } from "effect"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import { Args, Options } from "../Library.ts"
import { wholeNumber } from "../NumberOption.ts"

/** The arguments that address an entry. */
export const namespace = Args.text({ name: "namespace" }).pipe(Args.withDescription("Such as tenant:demo/notes"))
export const key = Args.text({ name: "key" })

/** The option for a precondition on the version. */
export const ifVersion = (description: string) =>
  wholeNumber("if-version").pipe(
    Options.withPseudoName("version"),
    Options.withDescription(description),
    Options.optional
  )

/** Fails with exit code 2 for a version that no entry can have. Without this check a precondition would never hold. */
export const checkVersion = (version: Option.Option<number>, minimum: 0 | 1): Effect.Effect<void, CommandFailed> =>
  Option.exists(version, version => version < minimum)
    ? wrong(`--if-version must be ${minimum} or more`, "Versions of entries start at 1.")
    : Effect.void

/** The option for the actor of a write. */
export const actor = Options.text("actor").pipe(
  Options.withPseudoName("name"),
  Options.withDescription("Recorded as the author; default api"),
  Options.optional
)

/** The option for a prefix of keys. */
export const prefix = Options.text("prefix").pipe(
  Options.withDescription("Only keys that start with this"),
  Options.optional
)

/** An option of the client if the user gives it. */
export const given = <A, Name extends string>(name: Name, option: Option.Option<A>): Partial<Record<Name, A>> =>
  Option.match(option, {
    onNone: () => ({}),
    onSome: value => ({ [name]: value }) as Partial<Record<Name, A>>
  })
