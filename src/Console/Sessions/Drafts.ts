/** Messages that are typed and not sent. */
import { type Signal, signal } from "@preact/signals"
import type { Sessions } from "../../Client/Client.ts"

const drafts = new WeakMap<Sessions, Map<string, Signal<string>>>()

/**
 * The message that is typed for a session. It stays while another view is looked at, and is gone with the connection of
 * who has typed it.
 */
export const draftFor = (sessions: Sessions, id: string): Signal<string> => {
  const ofConnection = drafts.get(sessions) ?? new Map<string, Signal<string>>()
  drafts.set(sessions, ofConnection)
  const draft = ofConnection.get(id) ?? signal("")
  ofConnection.set(id, draft)
  return draft
}
