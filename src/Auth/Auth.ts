import { Context, type Redacted } from "effect"

/** What a bearer of a credential may do. */
export type Access = "read" | "write"

/** Who may do what on the key-value surface. */
export class Auth extends Context.Tag("causeway/Auth")<
  Auth,
  {
    /** What a token opens, or `undefined` for nothing. Takes the same time for every wrong token of a length. */
    readonly accessOf: (token: Redacted.Redacted) => Access | undefined
  }
>() {}
