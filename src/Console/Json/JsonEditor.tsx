/** A text field for JSON, which shows where it is wrong and keeps the text as it is. */
import { useMemo, useRef } from "preact/hooks"
import { colored, type Problem, placeOf } from "./JsonText.ts"

/** Beyond this many characters the text is not colored, so that typing stays quick. */
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
  return (
    <>
      {parts.map(({ kind, text }) => (kind === "other" ? text : <span class={`json-${kind}`}>{text}</span>))}
      {"\n"}
    </>
  )
}

export const JsonEditor = ({ isReadOnly = false, label, onInput, onSave, problem, text }: Props) => {
  const field = useRef<HTMLTextAreaElement>(null)
  const backdrop = useRef<HTMLDivElement>(null)
  const lines = useMemo(() => text.split("\n").length, [text])
  const place = problem && placeOf(text, problem.offset)

  const scroll = () => {
    if (backdrop.current === null || field.current === null) return
    backdrop.current.style.transform = `translate(${-field.current.scrollLeft}px, ${-field.current.scrollTop}px)`
  }

  const showProblem = () => {
    if (problem === undefined) return
    field.current?.focus()
    field.current?.setSelectionRange(problem.offset, Math.min(problem.offset + 1, text.length))
  }

  return (
    <div class="editor">
      <div class="editor-box" data-invalid={problem !== undefined}>
        <div class="editor-back" aria-hidden="true">
          <div class="editor-scrolled" ref={backdrop}>
            <div class="editor-lines">
              {lines <= 5000 &&
                Array.from({ length: lines }, (_, index) => (
                  <span class={place?.line === index + 1 ? "bad" : undefined}>{index + 1}</span>
                ))}
            </div>
            <pre class="editor-colors">
              <Colors text={text} />
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
          onScroll={scroll}
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
