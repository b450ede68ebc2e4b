/** Names that are too long for their place. */

/** A text with at most `max` UTF-16 code units: the middle is left out, as ids of one kind begin alike. */
export const cutMiddle = (text: string, max: number): string => {
  if (text.length <= max) return text
  const end = Math.floor((max - 1) / 2)
  return `${text.slice(0, max - 1 - end)}…${text.slice(-end)}`
}
