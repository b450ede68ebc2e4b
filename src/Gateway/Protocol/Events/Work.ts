/** Events of what an agent does: terminals, files, plans, helpers and state. */
import { Schema } from "effect"
import { Count, described, Identifier, Integer, Name, optional, Path } from "../Fields.ts"
import { Json } from "../Json.ts"
import { body, turn } from "./Body.ts"

/** A terminal is open. */
export const TerminalOpened = body("terminal_opened", "A terminal is open.", {
  ...turn,
  terminalId: Identifier,
  command: optional(Schema.String),
  cwd: optional(Schema.String)
})

/** A terminal printed something. */
export const TerminalOutput = body("terminal_output", "A terminal printed something.", {
  ...turn,
  terminalId: Identifier,
  stream: optional(described(Schema.String, "`stdout` or `stderr`, where they are told apart.")),
  text: Schema.String
})

/** A terminal's process has ended. */
export const TerminalExited = body("terminal_exited", "A terminal's process has ended.", {
  ...turn,
  terminalId: Identifier,
  exitCode: optional(described(Integer, "Absent where a signal ended it.")),
  signal: optional(Schema.String)
})

/** A file of the workspace has changed. */
export const FileChanged = body("file_changed", "A file of the workspace has changed.", {
  ...turn,
  change: Schema.Literal("created", "modified", "deleted", "renamed"),
  path: Path,
  previousPath: optional(described(Path, "Where a renamed file was before.")),
  iteration: optional(Count),
  size: optional(described(Count, "Bytes of the content.")),
  hash: optional(Schema.String)
})

/** The agent has a plan, or another one. */
export const PlanUpdated = body("plan_updated", "The agent has a plan, or another one.", { ...turn, plan: Json })

/** A step of the plan begins. */
export const StepStarted = body("step_started", "A step of the plan begins.", {
  ...turn,
  stepId: Identifier,
  title: optional(Schema.String)
})

/** A step of the plan is over. */
export const StepCompleted = body("step_completed", "A step of the plan is over.", {
  ...turn,
  stepId: Identifier,
  title: optional(Schema.String),
  status: optional(Schema.String)
})

/** Another agent begins to work for this one. */
export const SubagentStarted = body("subagent_started", "Another agent begins to work for this one.", {
  ...turn,
  subagentId: Identifier,
  agentType: optional(Schema.String),
  task: optional(Schema.String)
})

/** Another agent is done. */
export const SubagentCompleted = body("subagent_completed", "Another agent is done.", {
  ...turn,
  subagentId: Identifier,
  agentType: optional(Schema.String),
  result: optional(Json)
})

/** The agent has made something to keep. */
export const ArtifactCreated = body("artifact_created", "The agent has made something to keep.", {
  ...turn,
  artifactId: Identifier,
  name: optional(Name),
  mimeType: optional(Schema.String),
  uri: optional(Schema.String)
})

/** A state to which one can come back. */
export const CheckpointCreated = body("checkpoint_created", "A state to which one can come back.", {
  ...turn,
  checkpointId: Identifier,
  label: optional(Schema.String)
})

/** The agent's state as a whole. */
export const StateSnapshot = body("state_snapshot", "The agent's state as a whole.", { ...turn, state: Json })

/** A change of the agent's state, as JSON Patch (RFC 6902) where the platform sends that. */
export const StateDelta = body("state_delta", "A change of the agent's state, usually as JSON Patch (RFC 6902).", {
  ...turn,
  patch: Json
})
