/** A text field for JSON. It keeps the text as it is, and shows syntax errors and hidden characters. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { codePointOf, hiddenIn } from "../../base/HiddenCharacters.ts"
import { colored, type Problem, positionOf } from "../JsonText.ts"
import { marked } from "./VisibleText.tsx"

/** The height of a line in pixels, as in the style sheet. */
const lineHeight = 20

/** The number of lines that are rendered before and after those in view, for scrolling. */
const overscan = 40

/** Longer texts in view are not colored, so that typing stays fast. */
const maxColored = 50_000

interface Props {
  readonly text: string
  readonly label: string
  readonly isReadOnly?: boolean
  readonly problem?: Problem | undefined
  readonly onInput?: (text: string) => void
  readonly onSave?: () => void
}

/** A text with a mark at each hidden character. The marks have no width, so that the text stays aligned. */
const Marked = ({ text }: { readonly text: string }) => (
  <>
    {marked(text, hiddenIn(text, "json"), character => (
      <span class="json-hidden">{character}</span>
    ))}
  </>
)

/** The text in colors. It is only for sight: the field above it receives the input and is read aloud. */
const Colors = ({ text }: { readonly text: string }) => {
  const parts = useMemo(() => (text.length > maxColored ? undefined : colored(text)), [text])
  if (parts === undefined) return <>{text}</>
  return (
    <>
      {parts.map(({ kind, text }) =>
        kind === "other" ? (
          <Marked text={text} />
        ) : (
          <span class={`json-${kind}`}>
            <Marked text={text} />
          </span>
        )
      )}
    </>
  )
}

interface NoteProps {
  readonly text: string
  readonly offset: number
  readonly tone: "bad" | "warn"
  readonly message: string
  readonly onSelect: (offset: number) => void
}

/** A message about a position in the text, which is selected by a click. */
const PositionNote = ({ message, offset, onSelect, text, tone }: NoteProps) => {
  const { column, line } = positionOf(text, offset)
  return (
    <p class={`editor-note ${tone}`} role="status">
      <button type="button" onClick={() => onSelect(offset)}>
        Line {line}, column {column}: {message}
      </button>
    </p>
  )
}

/** The lines near the view, which are rendered behind the field. Others are not, because each key renders them again. */
const useDrawnLines = (text: string) => {
  const field = useRef<HTMLTextAreaElement>(null)
  const backdrop = useRef<HTMLDivElement>(null)
  const lines = useMemo(() => text.split("\n"), [text])
  const [drawn, setDrawn] = useState({ first: 0, end: 2 * overscan })
  const shown = useMemo(() => lines.slice(drawn.first, drawn.end), [lines, drawn])

  const align = () => {
    if (backdrop.current === null || field.current === null) return
    const { scrollLeft, scrollTop } = field.current
    backdrop.current.style.transform = `translate(${-scrollLeft}px, ${drawn.first * lineHeight - scrollTop}px)`
  }
  const look = () => {
    align()
    if (field.current === null) return
    const { clientHeight, scrollTop } = field.current
    const first = Math.floor(scrollTop / lineHeight)
    const end = Math.ceil((scrollTop + clientHeight) / lineHeight)
    if (first >= drawn.first && end <= drawn.end) return
    setDrawn({ first: Math.max(0, first - overscan), end: end + overscan })
  }
  const latest = useRef(look)
  latest.current = look
  useLayoutEffect(align)
  useEffect(() => {
    const observer = new ResizeObserver(() => latest.current())
    if (field.current !== null) observer.observe(field.current)
    return () => observer.disconnect()
  }, [])
  return { field, backdrop, shown, first: drawn.first, count: lines.length, look }
}

export const JsonEditor = ({ isReadOnly = false, label, onInput, onSave, problem, text }: Props) => {
  const { backdrop, count, field, first, look, shown } = useDrawnLines(text)
  const problemLine = problem && positionOf(text, problem.offset).line
  const hidden = useMemo(() => hiddenIn(text, "json"), [text])

  const select = (offset: number) => {
    field.current?.focus()
    field.current?.setSelectionRange(offset, Math.min(offset + 1, text.length))
  }

  return (
    <div class="editor">
      <div class="editor-box" data-invalid={problem !== undefined} style={{ "--digits": String(count).length }}>
        <div class="editor-back" aria-hidden="true">
          <div class="editor-scrolled" ref={backdrop}>
            <div class="editor-lines">
              {shown.map((_, index) => {
                const line = first + index + 1
                return <span class={problemLine === line ? "bad" : undefined}>{line}</span>
              })}
            </div>
            <pre class="editor-colors">
              <Colors text={shown.join("\n")} />
            </pre>
          </div>
        </div>
        <textarea
          ref={field}
          aria-label={label}
          aria-invalid={problem !== undefined}
          autocapitalize="off"
          autocomplete="off"
          readOnly={isReadOnly}
          spellcheck={false}
          value={text}
          wrap="off"
          onInput={event => onInput?.(event.currentTarget.value)}
          onKeyDown={event => {
            if ((event.ctrlKey || event.metaKey) && event.key === "s") {
              event.preventDefault()
              onSave?.()
            }
          }}
          onScroll={look}
        />
      </div>
      {problem && (
        <PositionNote text={text} offset={problem.offset} tone="bad" message={problem.message} onSelect={select} />
      )}
      {hidden[0] && (
        <PositionNote
          text={text}
          offset={hidden[0].offset}
          tone="warn"
          message={`hidden character ${codePointOf(hidden[0].character)}${hidden.length === 1 ? "" : `, and ${hidden.length - 1} more`}`}
          onSelect={select}
        />
      )}
    </div>
  )
}
