/** Why a server cannot listen, in words for its user. */
import { Schema } from "effect"

/** The address that a server listens at. */
export interface Address {
  readonly host: string
  /** 0 for any free one. */
  readonly port: number
}

/** A server cannot listen at its address. */
export class ListenFailed extends Schema.TaggedError<ListenFailed>()("ListenFailed", {
  host: Schema.String,
  port: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `Cannot listen on host ${this.host}, port ${this.port}: ${this.reason}`
  }
  /** Without locations in this code, because the message is for the user of the program. */
  override readonly stack = `${this.name}: ${this.message}`
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: "the address is already in use",
  EACCES: "this user may not use that port",
  EADDRNOTAVAIL: "this machine has no such address",
  ENOTFOUND: "the host name is unknown"
}

/** Why a server cannot listen, from an error of `node:net`. */
export const listenFailed = ({ host, port }: Address, cause: unknown): ListenFailed => {
  const code = typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : ""
  const reason = code in reasons ? `${reasons[code]} (${code})` : String(cause)
  return new ListenFailed({ host, port, reason })
}
