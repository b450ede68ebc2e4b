/** A list of which only the rows that are seen exist. */
import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer
} from "@tanstack/virtual-core"
import type { ComponentChildren } from "preact"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { isAlone, placeAfter } from "./Keys.ts"

interface Props {
  readonly count: number
  /** Pixels of a row, as far as they are known before it is drawn. */
  readonly rowHeight: number
  readonly label: string
  readonly row: (index: number) => ComponentChildren
  /** What identifies a row while others come before it. */
  readonly keyOf: (index: number) => string | number
  /** Whether the end stays in view as rows are added, unless the user has scrolled away from it. */
  readonly isFollowing?: boolean
  /** Each new number brings the end into view, wherever the user is. */
  readonly endRequest?: number
  /** Is called when the last rows come into view. */
  readonly onEnd?: () => void
  /** Is told which rows are drawn: those that are seen, and some beyond. */
  readonly onRange?: (first: number, last: number) => void
  readonly role?: "list" | "log"
  /** Whether what is there is still being read: nothing of it is read aloud. */
  readonly isBusy?: boolean
  readonly class?: string
  /** Is told of what is added or changes its size, so that the end is kept in view. */
  readonly revision?: unknown
}

/** How near to the end counts as there, in pixels. */
const nearEnd = 60

const order = { axis: "vertical", wraps: false } as const

/** What can be pressed in an element. */
const controlsIn = (element: Element | null | undefined): ReadonlyArray<HTMLElement> => [
  ...(element?.querySelectorAll<HTMLElement>("a, button") ?? [])
]

/** The row that an element is in. */
const indexOf = (element: Element | null | undefined): number | undefined => {
  const row = element?.closest<HTMLElement>("[data-index]")
  return row == null ? undefined : Number(row.dataset.index)
}

export const VirtualList = (props: Props) => {
  const { count, isFollowing = false, keyOf, label, onEnd, role = "list", row, rowHeight } = props
  const box = useRef<HTMLDivElement>(null)
  const [, redraw] = useState(0)
  const isAtEnd = useRef(true)
  const isAway = useRef(false)

  const options = {
    // Away from both ends, the rows that are seen stay where they are while others come or go before them.
    anchorTo: isAway.current && !(isFollowing && isAtEnd.current) ? ("end" as const) : ("start" as const),
    count,
    estimateSize: () => rowHeight,
    getItemKey: keyOf,
    getScrollElement: () => box.current,
    measureElement,
    observeElementOffset,
    observeElementRect,
    onChange: () => redraw(n => n + 1),
    overscan: 8,
    scrollToFn: elementScroll
  }
  const [virtualizer] = useState(() => new Virtualizer<HTMLDivElement, HTMLDivElement>(options))
  virtualizer.setOptions(options)

  useLayoutEffect(() => virtualizer._didMount(), [])
  useLayoutEffect(() => virtualizer._willUpdate())

  const rows = virtualizer.getVirtualItems()
  const total = virtualizer.getTotalSize()

  useLayoutEffect(() => {
    isAtEnd.current = true
  }, [props.endRequest])

  useLayoutEffect(() => {
    if (isFollowing && isAtEnd.current && box.current !== null) box.current.scrollTop = box.current.scrollHeight
  }, [isFollowing, count, total, virtualizer.scrollRect?.height, props.revision, props.endRequest])

  const first = rows[0]?.index ?? 0
  const last = rows.at(-1)?.index ?? -1
  useEffect(() => props.onRange?.(first, last), [first, last])
  useEffect(() => {
    if (count > 0 && last >= count - 1) onEnd?.()
  }, [last, count])

  /** Tab passes a list at once, as the arrow keys move within it. */
  useLayoutEffect(() => {
    if (role === "list") for (const control of controlsIn(box.current)) control.tabIndex = -1
  })

  /** Focuses a row when it is there: those far away are drawn in one of the next frames. */
  const focus = (index: number, frames = 20): void => {
    const [control] = controlsIn(box.current?.querySelector(`[data-index="${index}"]`))
    if (control !== undefined) control.focus({ preventScroll: true })
    else if (frames > 0) requestAnimationFrame(() => focus(index, frames - 1))
  }

  const move = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement
    const isInRow = target !== box.current
    if (role !== "list" || (isInRow && !target.matches("a, button"))) return
    const present = isInRow ? indexOf(target) : (indexOf(box.current?.querySelector("[aria-current]")) ?? firstSeen())
    // From the list itself, either arrow leads to the row that is present.
    const isFirst = !isInRow && /^Arrow(?:Up|Down)$/.test(event.key)
    const next = isFirst ? (present ?? 0) : placeAfter(event.key, present ?? 0, count, order)
    if (next === undefined || !isAlone(event) || count === 0) return
    event.preventDefault()
    virtualizer.scrollToIndex(next)
    focus(next)
  }

  const firstSeen = (): number => virtualizer.range?.startIndex ?? 0

  return (
    <div
      ref={box}
      class={`virtual ${props.class ?? ""}`}
      role={role}
      aria-label={label}
      aria-busy={props.isBusy}
      // Away from the end, rows come because the user scrolls to them.
      aria-live={role === "log" && !isAtEnd.current ? "off" : undefined}
      tabIndex={0}
      onKeyDown={move}
      onScroll={({ currentTarget: { clientHeight, scrollHeight, scrollTop } }) => {
        isAway.current = scrollTop > 0
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < nearEnd
      }}
    >
      <div class="virtual-rows" role="presentation" style={{ height: `${total}px` }}>
        {rows.map(({ index, key, start }) => (
          <div
            key={key as string}
            ref={virtualizer.measureElement}
            class="virtual-row"
            role={role === "list" ? "listitem" : undefined}
            data-index={index}
            style={{ transform: `translateY(${start}px)` }}
          >
            {row(index)}
          </div>
        ))}
      </div>
    </div>
  )
}
