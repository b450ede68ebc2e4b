/**
 * The lifecycle of a session as a state machine. Only this table of states and events changes the state of a session.
 */
import type { SessionState } from "../../Protocol/Fields.ts"

/** The state of a session that clients see. */
export type LifecycleState = SessionState

/** An event that can change the state of a session. */
export type LifecycleEvent =
  /** A new instance is requested, whatever the outcome of the previous one. */
  | "activate"
  | "activated"
  | "deactivate"
  | "deactivated"
  /** The connection to the instance was lost and is being re-established. */
  | "disconnected"
  | "reconnected"
  /** The instance has stopped without an error. */
  | "ended"
  /** The activation or the instance has failed. */
  | "failed"
  /** The gateway was restarted. No instance is running any longer. */
  | "recovered"

/** State x event -> state. An event without an entry is ignored in that state. */
export const transitions: Readonly<Record<LifecycleState, { readonly [E in LifecycleEvent]?: LifecycleState }>> = {
  inactive: { activate: "activating" },
  activating: {
    activate: "activating",
    activated: "active",
    deactivate: "deactivating",
    failed: "error",
    recovered: "inactive"
  },
  active: {
    activate: "activating",
    disconnected: "reconnecting",
    deactivate: "deactivating",
    ended: "inactive",
    failed: "error",
    recovered: "inactive"
  },
  reconnecting: {
    activate: "activating",
    reconnected: "active",
    deactivate: "deactivating",
    ended: "inactive",
    failed: "error",
    recovered: "inactive"
  },
  deactivating: { activate: "activating", deactivated: "inactive", recovered: "inactive" },
  error: { activate: "activating", deactivate: "deactivating" }
}

/** The state after an event; `undefined` if the event is ignored. */
export const next = (state: LifecycleState, event: LifecycleEvent): LifecycleState | undefined =>
  transitions[state][event]
