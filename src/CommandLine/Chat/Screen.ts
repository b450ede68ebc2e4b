/** Events of a session on a screen: deltas continue their text, and everything else gets its own lines. */
import { identity } from "effect"
import type { EventBody, EventBodyOf } from "../../Gateway/Protocol.ts"
import { cleanName, cleanPart, count, indent, type Paint, show } from "../Terminal/Text.ts"

/** An optional part of a sentence. */
const given = (value: unknown, say: (text: string) => string): string => (value === undefined ? "" : say(show(value)))

const because = (reason: unknown): string => given(reason, text => ` (${text})`)

const files = { created: "+", modified: "~", deleted: "-", renamed: ">" } as const

const fileChanged = ({ change, path, previousPath, iteration, size }: EventBodyOf<"file_changed">): string => {
  const name = previousPath === undefined ? cleanName(path) : `${cleanName(previousPath)} → ${cleanName(path)}`
  const details = [
    ...(iteration === undefined ? [] : [`iteration ${iteration}`]),
    ...(size === undefined ? [] : [`${count(size)} bytes`])
  ]
  return `${files[change]} ${name}${details.length === 0 ? "" : ` (${details.join(", ")})`}`
}

const usage = (event: EventBodyOf<"usage_update">): string => {
  const figures: ReadonlyArray<readonly [string, number | undefined]> = [
    ["in", event.inputTokens],
    ["out", event.outputTokens],
    ["in all", event.totalTokens],
    ["from the cache", event.cacheReadTokens],
    ["into the cache", event.cacheWriteTokens]
  ]
  const tokens = figures.flatMap(([name, value]) => (value === undefined ? [] : [`${count(value)} ${name}`]))
  return [
    ...(tokens.length === 0 ? [] : [`tokens: ${tokens.join(", ")}`]),
    ...(event.costUsd === undefined ? [] : [`$${event.costUsd}`]),
    ...(event.model === undefined ? [] : [cleanName(event.model)])
  ].join(", ")
}

const options = ({ options = [] }: EventBodyOf<"question_requested">): string =>
  options.map((option, index) => `\n${index + 1}. ${show(option)}`).join("")

const progress = (value: number | undefined): string => (value === undefined ? "" : `${Math.round(value * 100)} % `)

const textOf = (event: EventBody, { bold, cyan, dim, green, red, yellow }: Paint): string | undefined => {
  switch (event.type) {
    case "session_state":
      return dim(`· session ${event.state}${because(event.reason)}`)
    case "turn_started":
      return event.content === undefined ? undefined : bold(`> ${show(event.content)}`)
    case "turn_errored": {
      const again = event.retryable ? " Sending it again may help." : ""
      return red(`✗ the turn failed: ${show(event.message)} (${show(event.code)}).${again}`)
    }
    case "turn_interrupted":
      return yellow(`· the turn was interrupted${because(event.reason)}`)
    case "tool_call":
      return cyan(`→ ${show(event.name)}${given(event.args, args => ` ${args}`)}`)
    case "tool_progress":
      return dim(`  ${progress(event.progress)}${given(event.message, text => text)}`)
    case "tool_result":
      return dim(`← ${given(event.result, text => text)}`)
    case "tool_error":
      return red(`← ${show(event.message)}${because(event.code)}`)
    case "question_requested":
      return bold(`? ${show(event.question)}${options(event)}`)
    case "question_resolved":
      return dim(`· answered${given(event.answer, text => `: ${text}`)}`)
    case "approval_requested": {
      const what = `${show(event.action)}${given(event.description, text => `: ${text}`)}`
      return bold(`? May the agent do this? ${what}${given(event.details, text => `\n${text}`)}\nAnswer yes or no.`)
    }
    case "approval_resolved":
      return event.approved ? green(`· approved${because(event.reason)}`) : yellow(`· denied${because(event.reason)}`)
    case "terminal_opened":
      return dim(`$ ${given(event.command, text => text)}${because(event.cwd)}`)
    case "terminal_exited":
      return dim(`· the terminal exited${given(event.signal ?? event.exitCode, text => ` with ${text}`)}`)
    case "file_changed":
      return green(fileChanged(event))
    case "plan_updated":
      return dim(`· plan: ${show(event.plan)}`)
    case "step_started":
      return dim(`· step: ${show(event.title ?? event.stepId)}`)
    case "step_completed":
      return dim(`· step ${show(event.status ?? "done")}: ${show(event.title ?? event.stepId)}`)
    case "subagent_started":
      return dim(`· agent ${show(event.agentType ?? event.subagentId)} starts${given(event.task, text => `: ${text}`)}`)
    case "subagent_completed": {
      const result = given(event.result, text => `: ${text}`)
      return dim(`· agent ${show(event.agentType ?? event.subagentId)} is done${result}`)
    }
    case "artifact_created":
      return green(`+ artifact ${show(event.name ?? event.artifactId)}${because(event.uri)}`)
    case "checkpoint_created":
      return dim(`· checkpoint ${show(event.label ?? event.checkpointId)}`)
    case "state_snapshot":
      return dim(`· state: ${show(event.state)}`)
    case "state_delta":
      return dim(`· state changes: ${show(event.patch)}`)
    case "usage_update":
      return dim(`· ${usage(event)}`)
    case "usage_context":
      return dim(`· context: ${count(event.used)} of ${count(event.limit)} tokens (${event.percent} %)`)
    case "rate_limited": {
      const wait = event.retryAfterMs === undefined ? "" : `, for ${event.retryAfterMs / 1000} s`
      return yellow(`· the agent must wait${wait}${because(event.message)}`)
    }
    case "error":
      return red(`✗ ${show(event.message)} (${show(event.code)})`)
    // Screen shows their text.
    case "turn_completed":
    case "text_start":
    case "text_delta":
    case "text_end":
    case "thinking_start":
    case "thinking_delta":
    case "thinking_end":
    case "tool_call_start":
    case "tool_call_delta":
    case "terminal_output":
      return undefined
  }
}

/** An event as text without a final line break; `undefined` if it is not shown. */
const lineOf = (event: EventBody, paint: Paint): string | undefined => {
  const text = textOf(event, paint)
  return text === undefined ? undefined : indent(text)
}

/** The state of the screen. */
export interface Screen {
  /** The text of the last delta. */
  readonly block: string | undefined
  readonly isAtLineStart: boolean
  /** Unfinished texts with deltas that were shown; at most the newest {@link maxBegun}. */
  readonly begun: ReadonlySet<string>
}

/** The new state, and the output. */
export type Drawn = readonly [screen: Screen, text: string]

/** An empty screen. */
export const empty: Screen = { block: undefined, isAtLineStart: true, begun: new Set() }

const maxBegun = 256

const remember = (begun: ReadonlySet<string>, block: string): ReadonlySet<string> =>
  begun.has(block) ? begun : new Set([...begun, block].slice(-maxBegun))

const forget = (begun: ReadonlySet<string>, block: string): ReadonlySet<string> =>
  begun.has(block) ? new Set([...begun].filter(other => other !== block)) : begun

/** Ends an unfinished line. */
export const breakLine = (screen: Screen): Drawn => [
  { ...screen, block: undefined, isAtLineStart: true },
  screen.isAtLineStart ? "" : "\n"
]

/** Output in its own lines. */
export const drawLine = (screen: Screen, line: string): Drawn => {
  const [next, lineEnd] = breakLine(screen)
  return [next, `${lineEnd}${line}\n`]
}

const drawPiece = (screen: Screen, block: string, piece: string, style: (text: string) => string): Drawn => {
  if (piece === "") return [screen, ""]
  const [before, lineEnd] = screen.block === block ? [screen, ""] : breakLine(screen)
  const text = cleanPart(piece)
  const next = {
    block,
    isAtLineStart: text === "" ? before.isAtLineStart : text.endsWith("\n"),
    begun: remember(screen.begun, block)
  }
  return [next, `${lineEnd}${style(text)}`]
}

/** The end of a text. The whole text is shown if no delta was. */
const drawEnd = (screen: Screen, block: string, whole: string | undefined, style: (text: string) => string): Drawn => {
  const isKnown = screen.begun.has(block)
  const [shown, text] = isKnown ? ([screen, ""] as const) : drawPiece(screen, block, whole ?? "", style)
  const [next, lineEnd] = shown.block === block ? breakLine(shown) : ([shown, ""] as const)
  return [{ ...next, begun: forget(next.begun, block) }, `${text}${lineEnd}`]
}

/** The output of an event. */
export const draw = (screen: Screen, event: EventBody, paint: Paint): Drawn => {
  switch (event.type) {
    case "text_delta":
      return drawPiece(screen, `text ${event.messageId ?? ""}`, event.text, identity)
    case "text_end":
      return drawEnd(screen, `text ${event.messageId}`, event.text, identity)
    case "thinking_delta":
      return drawPiece(screen, `thinking ${event.thinkingId}`, event.text, paint.dim)
    case "thinking_end":
      return drawEnd(screen, `thinking ${event.thinkingId}`, event.text, paint.dim)
    case "terminal_output":
      return drawPiece(screen, `terminal ${event.terminalId}`, event.text, paint.dim)
    case "turn_completed":
      return breakLine(screen)
    default: {
      const line = lineOf(event, paint)
      return line === undefined ? [screen, ""] : drawLine(screen, line)
    }
  }
}
