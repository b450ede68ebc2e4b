/** The keys that move the focus within a widget, as the ARIA Authoring Practices have them. */

/** The order in which elements stand, and whether the last one is followed by the first. */
interface Order {
  readonly axis: "horizontal" | "vertical"
  readonly wraps: boolean
}

const stepOf = (key: string, axis: Order["axis"]): number | undefined => {
  if (key === (axis === "horizontal" ? "ArrowRight" : "ArrowDown")) return 1
  if (key === (axis === "horizontal" ? "ArrowLeft" : "ArrowUp")) return -1
  return undefined
}

/** The place that a key leads to from one of `count` places; `undefined` where it leads nowhere. */
export const placeAfter = (key: string, from: number, count: number, { axis, wraps }: Order): number | undefined => {
  if (count === 0) return undefined
  if (key === "Home") return 0
  if (key === "End") return count - 1
  const step = stepOf(key, axis)
  if (step === undefined) return undefined
  const next = from + step
  if (wraps) return (next + count) % count
  return next >= 0 && next < count ? next : undefined
}

/** Whether a key is pressed alone: with others it is the browser's. */
export const isAlone = ({ altKey, ctrlKey, metaKey, shiftKey }: KeyboardEvent): boolean =>
  !(altKey || ctrlKey || metaKey || shiftKey)
