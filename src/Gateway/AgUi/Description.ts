/** The documentation of AG-UI in the OpenAPI document. */
import { operation } from "../../Http/OpenApi/Describe.ts"
import { eventStreamOf, errors as shared } from "../Streams/Description.ts"

const run_ = { threadId: "thread-1", runId: "run-1" }

const input = {
  ...run_,
  ...{ state: {}, messages: [{ id: "m-1", role: "user", content: "Why does the build fail?" }] },
  ...{ tools: [], context: [], forwardedProps: {} }
}

const errors = {
  ...shared,
  404: {
    description: "The thread was deleted, or there is no such run.",
    example: { error: 'There is no session "thread-1"' }
  },
  409: {
    description: "The thread does not allow the run.",
    example: { error: 'messages[0]: the message "m-1" has other content, and a history is not rewritten' },
    headers: {}
  }
}

export const run = operation({
  operationId: "runAgent",
  summary: "Run an agent",
  description:
    "Starts or continues a turn, or joins a run again. The events end with `RUN_FINISHED` or `RUN_ERROR`. A lost connection does not stop the turn.",
  requests: { message: { summary: "A message", value: input } },
  answers: {
    ...errors,
    200: {
      description: "The events of the run.",
      example: eventStreamOf(
        { type: "RUN_STARTED", ...run_, protocolVersion: "1.0" },
        { type: "RUN_FINISHED", ...run_, outcome: { type: "success" } }
      )
    },
    400: { example: { error: "Invalid request: threadId: must not be empty" } }
  }
})

export const stop = operation({
  operationId: "stopRun",
  summary: "Stop a run",
  description: "Asks the agent to end the turn of the run, which then ends with the outcome `cancelled`.",
  answers: { ...errors, 400: { example: { error: "Invalid request: runId: must not be empty" } } },
  never: [413]
})
