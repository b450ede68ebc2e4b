/**
 * The protocol between clients and the gateway: requests, answers, events and close codes, as schemas. `docs/protocol.md`
 * and the AsyncAPI document are generated from them.
 *
 * Frames are JSON objects in WebSocket text messages, types in snake_case and fields in camelCase.
 */
export * from "./Protocol/Answer.ts"
export * from "./Protocol/CloseCode.ts"
export * from "./Protocol/Codec.ts"
export * from "./Protocol/ErrorCode.ts"
export * from "./Protocol/Event.ts"
export * as Limits from "./Protocol/Limits.ts"
export * from "./Protocol/Request.ts"
export * from "./Protocol/Session.ts"
