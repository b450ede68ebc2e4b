/** Texts of agents, tools and files, in which hidden characters are seen: alone, or two side by side. */
import { diffLines } from "diff"
import type { ComponentChildren } from "preact"
import { useMemo } from "preact/hooks"
import { hiddenIn, pictureOf } from "../../base/HiddenCharacters.ts"
import { visibleText } from "./Text.ts"

/** In texts with more hidden characters, such as those of binary files, only their pictures can be copied. */
const maxMarks = 2000

/** A hidden character behind its picture. U+0000 is only a picture: it would end the copied text on some systems. */
const markOf = (character: string): ComponentChildren =>
  character === "\u0000" ? (
    pictureOf(character)
  ) : (
    <span class="hidden-character" data-picture={pictureOf(character)}>
      <span>{character}</span>
    </span>
  )

export const marked = (
  text: string,
  hidden: ReturnType<typeof hiddenIn>,
  markOf: (character: string) => ComponentChildren
): ReadonlyArray<ComponentChildren> => {
  const parts: Array<ComponentChildren> = []
  let from = 0
  for (const { character, offset } of hidden) {
    parts.push(text.slice(from, offset), markOf(character))
    from = offset + character.length
  }
  return [...parts, text.slice(from)]
}

export const VisibleText = ({ text }: { readonly text: string }) => {
  const parts = useMemo(() => {
    const hidden = hiddenIn(text, "text")
    return hidden.length > maxMarks ? visibleText(text) : marked(text, hidden, markOf)
  }, [text])
  return <>{parts}</>
}

export const VisibleLines = (props: { readonly text: string }) => (
  <pre>
    <VisibleText {...props} />
  </pre>
)

type Row = { readonly left: string | undefined; readonly right: string | undefined }

/** The maximum time of a comparison in milliseconds, because it blocks the page. */
const timeout = 300

/** The maximum number of rows in a table that a browser renders without delay. */
const maxRows = 5000
const context = 3

const linesOf = (text: string): ReadonlyArray<string> => text.replace(/\n$/, "").split("\n")

/** The lines of both texts in rows. `undefined` if the texts differ so much that the comparison takes too long. */
const rowsOf = (left: string, right: string): ReadonlyArray<Row> | undefined => {
  const ended = (text: string) => (text === "" || text.endsWith("\n") ? text : `${text}\n`)
  const parts = diffLines(ended(left), ended(right), { timeout })
  if (parts === undefined) return undefined
  const rows: Array<Row> = []
  let removed: ReadonlyArray<string> = []
  const flush = (added: ReadonlyArray<string>) => {
    for (let i = 0; i < Math.max(removed.length, added.length); i++) rows.push({ left: removed[i], right: added[i] })
    removed = []
  }
  for (const part of parts) {
    const lines = linesOf(part.value)
    if (part.removed) removed = lines
    else if (part.added) flush(lines)
    else {
      flush([])
      for (const line of lines) rows.push({ left: line, right: line })
    }
  }
  flush([])
  return rows
}

const isChanged = ({ left, right }: Row): boolean => left !== right

const folded = (rows: ReadonlyArray<Row>): ReadonlyArray<Row | number> => {
  const near = new Set<number>()
  rows.forEach((row, index) => {
    if (isChanged(row)) for (let i = index - context; i <= index + context; i++) near.add(i)
  })
  const result: Array<Row | number> = []
  let hidden = 0
  rows.forEach((row, index) => {
    if (near.has(index) || rows.length <= 40) {
      if (hidden > 0) result.push(hidden)
      hidden = 0
      result.push(row)
    } else hidden++
  })
  if (hidden > 0) result.push(hidden)
  return result
}

interface Props {
  readonly left: string
  readonly right: string
  readonly leftTitle: string
  readonly rightTitle: string
}

/** The rows to show; `undefined` if they cannot be computed or rendered without delay. */
const shownRows = (left: string, right: string): ReadonlyArray<Row | number> | undefined => {
  const rows = rowsOf(left, right)
  if (rows === undefined) return undefined
  const shown = folded(rows)
  return shown.length > maxRows ? undefined : shown
}

const Uncompared = ({ left, leftTitle, right, rightTitle }: Props) => (
  <>
    <p class="muted">The texts differ too much to be compared line by line.</p>
    <div class="diff-texts">
      {[[leftTitle, left] as const, [rightTitle, right] as const].map(([title, text]) => (
        <label>
          <span>{title}</span>
          <textarea readOnly rows={16} value={visibleText(text)} />
        </label>
      ))}
    </div>
  </>
)

export const Diff = (props: Props) => {
  const { left, leftTitle, right, rightTitle } = props
  const rows = useMemo(() => shownRows(left, right), [left, right])
  if (rows === undefined) return <Uncompared {...props} />
  return (
    <div class="diff" tabIndex={0} role="region" aria-label={`${leftTitle} compared with ${rightTitle}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">{leftTitle}</th>
            <th scope="col">{rightTitle}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(row =>
            typeof row === "number" ? (
              <tr class="diff-fold">
                <td colSpan={2}>{row === 1 ? "1 unchanged line" : `${row} unchanged lines`}</td>
              </tr>
            ) : (
              <tr>
                <td class={isChanged(row) && row.left !== undefined ? "removed" : undefined}>
                  <VisibleText text={row.left ?? ""} />
                </td>
                <td class={isChanged(row) && row.right !== undefined ? "added" : undefined}>
                  <VisibleText text={row.right ?? ""} />
                </td>
              </tr>
            )
          )}
        </tbody>
      </table>
    </div>
  )
}
