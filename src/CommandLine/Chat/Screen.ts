/** The state of the screen: deltas continue their text, and everything else gets its own lines. */
import { identity } from "effect"
import type { EventBody } from "../../Gateway/Protocol.ts"
import { cleanPart, type Paint } from "../Terminal/Text.ts"
import { lineOf } from "./EventText.ts"

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
