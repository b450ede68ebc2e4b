import type { SessionState } from "../../Client/Client.ts"

/** The color of a session's state. */
export const toneOf: Readonly<Record<SessionState, string>> = {
  inactive: "",
  activating: "info",
  active: "good",
  reconnecting: "warn",
  deactivating: "info",
  error: "bad"
}
