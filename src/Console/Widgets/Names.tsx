/** Names that are too long for their place: the end, which distinguishes them, stays. */
import { visible } from "./Text.ts"

/** A text with at most `max` UTF-16 code units: the middle is left out, as ids of one kind begin alike. */
export const cutMiddle = (text: string, max: number): string => {
  if (text.length <= max) return text
  const end = Math.floor((max - 1) / 2)
  return `${text.slice(0, max - 1 - end)}…${text.slice(-end)}`
}

/** Names of so many characters are shown as one part. */
const shortName = 16

/** The characters of the end. */
const tail = 12

/**
 * A name on one line. If it does not fit, an ellipsis replaces what is before its last characters. The parts are drawn by
 * the style sheet: what is selected, and what a screen reader reads, is the whole name.
 */
export const Name = ({ text }: { readonly text: string }) => {
  const shown = Array.from(visible(text))
  if (shown.length <= shortName) return <bdi class="name-short">{shown.join("")}</bdi>
  return (
    <bdi class="name" title={visible(text)} dir="auto">
      <span class="visually-hidden">{shown.join("")}</span>
      <span class="name-start" aria-hidden="true" data-text={shown.slice(0, -tail).join("")} />
      <span class="name-end" aria-hidden="true" data-text={shown.slice(-tail).join("")} />
    </bdi>
  )
}
