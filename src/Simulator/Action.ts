import type { EventBody, Frame } from "./EventHistory.ts"

/** One thing the agent does. An `ask` gets the client's answer back, all others nothing. */
export type Action =
  | { readonly do: "emit"; readonly event: EventBody }
  /** Changes the workspace, which emits the file event. */
  | { readonly do: "write"; readonly path: string; readonly content: string }
  | { readonly do: "delete"; readonly path: string }
  | { readonly do: "rename"; readonly from: string; readonly to: string }
  /** Emits a question or a request for approval, and waits for the answer. */
  | { readonly do: "ask"; readonly requestId: string; readonly event: EventBody }
  /** Sends what is no event. */
  | { readonly do: "garble"; readonly frame: Frame }
  /** Never goes on. */
  | { readonly do: "hang" }
  /** Cuts the connections once they have had all events so far; the turn goes on. */
  | { readonly do: "disconnect"; readonly code: number | undefined }
  /** The instance stops as if it had been asked to. */
  | { readonly do: "stop"; readonly reason: string }
  /** The instance dies, and the turn with it. */
  | { readonly do: "crash"; readonly reason: string }

export type Script = Generator<Action, void, unknown>

/** What a script knows of its turn. */
export interface TurnContext {
  readonly turnId: string
  readonly content: string
  /** 1 for the first turn of an instance. */
  readonly number: number
  readonly instanceId: string
}

/** The action that emits an event. */
export const emit = (type: string, fields: Readonly<Record<string, unknown>> = {}): Action => ({
  do: "emit",
  event: { ...fields, type }
})
