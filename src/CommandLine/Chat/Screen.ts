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

type Line<Type extends EventBody["type"]> = (event: EventBodyOf<Type>, paint: Paint) => string | undefined

/** The text of each event; `undefined` for those whose text {@link draw} shows, and those that are not shown. */
const texts: { readonly [Type in EventBody["type"]]: Line<Type> | undefined } = {
  session_state: ({ reason, state }, { dim }) => dim(`· session ${state}${because(reason)}`),
  turn_started: ({ content }, { bold }) => (content === undefined ? undefined : bold(`> ${show(content)}`)),
  turn_completed: undefined,
  turn_errored: ({ code, message, retryable }, { red }) =>
    red(`✗ the turn failed: ${show(message)} (${show(code)}).${retryable ? " Sending it again may help." : ""}`),
  turn_interrupted: ({ reason }, { yellow }) => yellow(`· the turn was interrupted${because(reason)}`),
  text_start: undefined,
  text_delta: undefined,
  text_end: undefined,
  thinking_start: undefined,
  thinking_delta: undefined,
  thinking_end: undefined,
  tool_call_start: undefined,
  tool_call_delta: undefined,
  tool_call: ({ args, name }, { cyan }) => cyan(`→ ${show(name)}${given(args, text => ` ${text}`)}`),
  tool_progress: (event, { dim }) => dim(`  ${progress(event.progress)}${given(event.message, identity)}`),
  tool_result: ({ result }, { dim }) => dim(`← ${given(result, identity)}`),
  tool_error: ({ code, message }, { red }) => red(`← ${show(message)}${because(code)}`),
  question_requested: (event, { bold }) => bold(`? ${show(event.question)}${options(event)}`),
  question_resolved: ({ answer }, { dim }) => dim(`· answered${given(answer, text => `: ${text}`)}`),
  approval_requested: ({ action, description, details }, { bold }) => {
    const what = `${show(action)}${given(description, text => `: ${text}`)}`
    return bold(`? May the agent do this? ${what}${given(details, text => `\n${text}`)}\nAnswer yes or no.`)
  },
  approval_resolved: ({ approved, reason }, { green, yellow }) =>
    approved ? green(`· approved${because(reason)}`) : yellow(`· denied${because(reason)}`),
  terminal_opened: ({ command, cwd }, { dim }) => dim(`$ ${given(command, identity)}${because(cwd)}`),
  terminal_output: undefined,
  terminal_exited: ({ exitCode, signal }, { dim }) =>
    dim(`· the terminal exited${given(signal ?? exitCode, text => ` with ${text}`)}`),
  file_changed: (event, { green }) => green(fileChanged(event)),
  plan_updated: ({ plan }, { dim }) => dim(`· plan: ${show(plan)}`),
  step_started: ({ stepId, title }, { dim }) => dim(`· step: ${show(title ?? stepId)}`),
  step_completed: ({ status, stepId, title }, { dim }) =>
    dim(`· step ${show(status ?? "done")}: ${show(title ?? stepId)}`),
  subagent_started: ({ agentType, subagentId, task }, { dim }) =>
    dim(`· agent ${show(agentType ?? subagentId)} starts${given(task, text => `: ${text}`)}`),
  subagent_completed: ({ agentType, result, subagentId }, { dim }) =>
    dim(`· agent ${show(agentType ?? subagentId)} is done${given(result, text => `: ${text}`)}`),
  artifact_created: ({ artifactId, name, uri }, { green }) =>
    green(`+ artifact ${show(name ?? artifactId)}${because(uri)}`),
  checkpoint_created: ({ checkpointId, label }, { dim }) => dim(`· checkpoint ${show(label ?? checkpointId)}`),
  state_snapshot: ({ state }, { dim }) => dim(`· state: ${show(state)}`),
  state_delta: ({ patch }, { dim }) => dim(`· state changes: ${show(patch)}`),
  usage_update: (event, { dim }) => dim(`· ${usage(event)}`),
  usage_context: ({ limit, percent, used }, { dim }) =>
    dim(`· context: ${count(used)} of ${count(limit)} tokens (${percent} %)`),
  rate_limited: ({ message, retryAfterMs }, { yellow }) => {
    const wait = retryAfterMs === undefined ? "" : `, for ${retryAfterMs / 1000} s`
    return yellow(`· the agent must wait${wait}${because(message)}`)
  },
  error: ({ code, message }, { red }) => red(`✗ ${show(message)} (${show(code)})`)
}

/** An event as text without a final line break; `undefined` if it is not shown. */
const lineOf = (event: EventBody, paint: Paint): string | undefined => {
  const text = (texts[event.type] as Line<EventBody["type"]> | undefined)?.(event, paint)
  return text === undefined ? undefined : indent(text)
}

export interface Screen {
  /** The text of the last delta. */
  readonly block: string | undefined
  readonly isAtLineStart: boolean
  /** Unfinished texts with deltas that were shown; at most the newest {@link maxBegun}. */
  readonly begun: ReadonlySet<string>
}

/** The new state, and the output. */
export type Drawn = readonly [screen: Screen, text: string]

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
