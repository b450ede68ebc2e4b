/** A text field for JSON, which shows where it is wrong and keeps the text as it is. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { colored, type Problem, placeOf } from "./JsonText.ts"

/** Pixels of a line, as the style has it. */
const lineHeight = 20

/** Lines that are drawn before and after those in view, so that they are there while the text is scrolled. */
const around = 40

/** Lines of more characters than this are not colored, so that typing stays quick. */
const maxColored = 50_000

interface Props {
  readonly text: string
  readonly label: string
  readonly isReadOnly?: boolean
  readonly problem?: Problem | undefined
  readonly onInput?: (text: string) => void
  /** Control or Command with S. */
  readonly onSave?: () => void
}

/** The text in colors, for eyes alone: the field above it is what is typed into and read aloud. */
const Colors = ({ text }: { readonly text: string }) => {
  const parts = useMemo(() => (text.length > maxColored ? undefined : colored(text)), [text])
  if (parts === undefined) return <>{text}</>
  return <>{parts.map(({ kind, text }) => (kind === "other" ? text : <span class={`json-${kind}`}>{text}</span>))}</>
}

export const JsonEditor = ({ isReadOnly = false, label, onInput, onSave, problem, text }: Props) => {
  const field = useRef<HTMLTextAreaElement>(null)
  const backdrop = useRef<HTMLDivElement>(null)
  const lines = useMemo(() => text.split("\n"), [text])
  const place = problem && placeOf(text, problem.offset)

  // Only lines near the view are drawn: a text may have a hundred thousand, and is drawn anew with each key.
  const [drawn, setDrawn] = useState({ first: 0, end: 2 * around })
  const shown = useMemo(() => lines.slice(drawn.first, drawn.end), [lines, drawn])

  /** Puts what is drawn where the field has it. */
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
    setDrawn({ first: Math.max(0, first - around), end: end + around })
  }

  const latest = useRef(look)
  latest.current = look
  useLayoutEffect(align)
  useEffect(() => {
    const observer = new ResizeObserver(() => latest.current())
    if (field.current !== null) observer.observe(field.current)
    return () => observer.disconnect()
  }, [])

  const showProblem = () => {
    if (problem === undefined) return
    field.current?.focus()
    field.current?.setSelectionRange(problem.offset, Math.min(problem.offset + 1, text.length))
  }

  return (
    <div class="editor">
      <div class="editor-box" data-invalid={problem !== undefined} style={{ "--digits": String(lines.length).length }}>
        <div class="editor-back" aria-hidden="true">
          <div class="editor-scrolled" ref={backdrop}>
            <div class="editor-lines">
              {shown.map((_, index) => {
                const line = drawn.first + index + 1
                return <span class={place?.line === line ? "bad" : undefined}>{line}</span>
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
      {problem && place && (
        <p class="editor-problem" role="status">
          <button type="button" onClick={showProblem}>
            Line {place.line}, column {place.column}: {problem.message}
          </button>
        </p>
      )}
    </div>
  )
}
