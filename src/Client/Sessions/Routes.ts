/** The routes of the gateway over HTTP, by the requests of the WebSocket. */
import { refused } from "../Errors.ts"
import { json, type Reader, type Request, segment } from "../Requests.ts"
import type { Answer, RequestFrame } from "./Requests.ts"

/** A request, and how its answer is read. */
export interface Route {
  readonly request: Request
  readonly read: Reader<Answer>
}

/** Reads an answer of a type. Its body is an object with a member, if one is named. */
const reading = (type: Answer["type"], member?: string): Reader<Answer> => {
  const readBody = json<object>(
    body => typeof body === "object" && body !== null && (member === undefined || member in body)
  )
  return async (response, ...limits) => {
    const body = response.status === 204 ? {} : await readBody(response, ...limits)
    return { ...body, type, id: "" } as Answer
  }
}

const session = reading("session", "session")
const turn = reading("accepted", "turnId")

const once = ({ clientMessageId: key, ...content }: { readonly clientMessageId?: string }) => {
  if (key !== undefined && (key.trim() !== key || !/^[\x20-\x7e]{1,256}$/.test(key))) {
    throw refused("clientMessageId must be 1 to 256 printable characters of ASCII, without spaces at its ends")
  }
  return { body: JSON.stringify(content), headers: key === undefined ? {} : { "idempotency-key": key } }
}

/** The route of a request, below the path of the gateway. Throws `BadRequest` if there is none. */
export const routeOf = (frame: RequestFrame): Route => {
  if (frame.type === "create_session") {
    const { type, ...body } = frame
    const request: Request = { method: "POST", path: "/sessions", body: JSON.stringify(body) }
    return { request, read: reading("session_created", "session") }
  }
  if (frame.type === "list_sessions") {
    const { type, ...query } = frame
    return { request: { path: "/sessions", query }, read: reading("session_list", "sessions") }
  }
  const path = "sessionId" in frame ? pathOf(frame.sessionId) : ""
  switch (frame.type) {
    case "get_session":
      return { request: { path }, read: session }
    case "delete_session":
      return { request: { method: "DELETE", path }, read: reading("session_deleted") }
    case "stop_session":
      return { request: { method: "POST", path: `${path}/stop` }, read: session }
    case "start_session": {
      const { sessionId, type, ...body } = frame
      return { request: { method: "POST", path: `${path}/start`, body: JSON.stringify(body) }, read: session }
    }
    case "send_message": {
      const { sessionId, type, ...message } = frame
      return { request: { method: "POST", path: `${path}/messages`, ...once(message) }, read: turn }
    }
    case "answer": {
      const { sessionId, type, ...answer } = frame
      return { request: { method: "POST", path: `${path}/answers`, ...once(answer) }, read: reading("accepted") }
    }
    case "interrupt_turn": {
      const { sessionId, type, ...body } = frame
      return { request: { method: "POST", path: `${path}/interrupt`, body: JSON.stringify(body) }, read: turn }
    }
    default:
      throw refused(`${frame.type} needs a WebSocket: there is no such request over HTTP`)
  }
}

/** The path of a session, below the path of the gateway. */
export const pathOf = (sessionId: string): string => `/sessions/${segment("session", sessionId)}`
