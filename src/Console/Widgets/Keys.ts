/** The keys that move the focus within a widget (ARIA Authoring Practices). */

/** The direction of the elements, and whether the first one follows the last. */
interface Order {
  readonly axis: "horizontal" | "vertical"
  readonly wraps: boolean
}

const stepOf = (key: string, axis: Order["axis"]): number | undefined => {
  if (key === (axis === "horizontal" ? "ArrowRight" : "ArrowDown")) return 1
  if (key === (axis === "horizontal" ? "ArrowLeft" : "ArrowUp")) return -1
  return undefined
}

/** The index that a key moves to from `from`, of `count` elements; `undefined` if it does not move. */
export const indexAfter = (key: string, from: number, count: number, { axis, wraps }: Order): number | undefined => {
  if (count === 0) return undefined
  if (key === "Home") return 0
  if (key === "End") return count - 1
  const step = stepOf(key, axis)
  if (step === undefined) return undefined
  const next = from + step
  if (wraps) return (next + count) % count
  return next >= 0 && next < count ? next : undefined
}

/** Whether a key is pressed without modifiers. The browser handles the others. */
export const isAlone = ({ altKey, ctrlKey, metaKey, shiftKey }: KeyboardEvent): boolean =>
  !(altKey || ctrlKey || metaKey || shiftKey)
