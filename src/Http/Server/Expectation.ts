import type { IncomingMessage, ServerResponse } from "node:http"

/**
 * Sends `100 Continue` once something begins to read the body of a request that waits for it, and not before: an answer
 * that needs no body, such as 401, 413 or 415, comes in its place. Node ends the connection behind such an answer, as
 * the body may come nevertheless.
 */
export const continueWhenRead = (request: IncomingMessage, response: ServerResponse): void => {
  const read = request._read
  request._read = size => {
    request._read = read
    // Behind its answer node reads what is left of a request.
    if (!response.headersSent) response.writeContinue()
    read.call(request, size)
  }
}
