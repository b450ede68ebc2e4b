/** Arguments that several commands for entries take. */
import { Option } from "effect"
import { Args, Options } from "../Library.ts"

export const namespace = Args.text({ name: "namespace" }).pipe(Args.withDescription("Such as tenant:demo/notes"))
export const key = Args.text({ name: "key" })

export const ifVersion = Options.integer("if-version").pipe(
  Options.withPseudoName("version"),
  Options.withDescription("Only if the entry is at this version; 0: only if there is none"),
  Options.optional
)

export const actor = Options.text("actor").pipe(
  Options.withPseudoName("name"),
  Options.withDescription("Recorded as the author; api without it"),
  Options.optional
)

export const prefix = Options.text("prefix").pipe(
  Options.withDescription("Only keys that start with this"),
  Options.optional
)

/** An option of the client, where the user gives it. */
export const given = <A, Name extends string>(name: Name, option: Option.Option<A>): Partial<Record<Name, A>> =>
  Option.match(option, {
    onNone: () => ({}),
    onSome: value => ({ [name]: value }) as Partial<Record<Name, A>>
  })
