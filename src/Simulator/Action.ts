import type { EventBody, Frame } from "./EventHistory.ts"

/** An action of the agent. The result of `ask` is the client's answer; others have none. */
export type Action =
  | { readonly do: "emit"; readonly event: EventBody }
  /** Changes the workspace, which emits the file event. */
  | { readonly do: "write"; readonly path: string; readonly content: string }
  | { readonly do: "delete"; readonly path: string }
  | { readonly do: "rename"; readonly from: string; readonly to: string }
  /** Emits a question or a request for approval, and waits for the answer. */
  | { readonly do: "ask"; readonly requestId: string; readonly event: EventBody }
  /** Sends a frame that is no event. */
  | { readonly do: "frame"; readonly frame: Frame }
  /** Never ends. */
  | { readonly do: "hang" }
  /** Closes the connections once all events so far are sent; the turn goes on. */
  | { readonly do: "disconnect"; readonly code: number | undefined }
  /** The instance stops as if by a request. */
  | { readonly do: "stop"; readonly reason: string }
  /** The instance fails. */
  | { readonly do: "crash"; readonly reason: string }

export type Script = Generator<Action, void, unknown>

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
