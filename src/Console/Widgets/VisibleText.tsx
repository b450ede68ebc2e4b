/**
 * A text of an agent, a tool or a file, in which hidden characters are seen. Each is behind its picture, so that copying
 * the text copies the character.
 */
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

/** A text with a mark for each of its hidden characters. */
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

/** A text with its lines and spaces. */
export const VisibleLines = (props: { readonly text: string }) => (
  <pre>
    <VisibleText {...props} />
  </pre>
)
