/**
 * The protocol between clients and the gateway: requests, answers, events and close codes, as schemas.
 * `docs/reference/protocol.md` and the AsyncAPI document are generated from them.
 *
 * A frame is a JSON object in a WebSocket text message. Types are in snake_case, fields in camelCase.
 */
import type { Answer } from "./Protocol/Answer.ts"
import type { Event } from "./Protocol/Event.ts"
import type { RequestFrame } from "./Protocol/Request.ts"

export * from "./Protocol/Answer.ts"
export * from "./Protocol/Codes.ts"
export * from "./Protocol/Event.ts"
export { LostPart, Session, SessionState } from "./Protocol/Fields.ts"
export * as Limits from "./Protocol/Limits.ts"
export * from "./Protocol/Request.ts"

/** A frame as text. Frames are typed as they travel, so nothing has to be encoded. */
export const encode = (frame: RequestFrame | Answer | Event): string => JSON.stringify(frame)
