/** A list that renders only the rows in view. */
import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer
} from "@tanstack/virtual-core"
import type { ComponentChildren, RefObject } from "preact"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { CopyMenu, type CopyProps } from "./CopyMenu.tsx"
import { indexAfter, isAlone } from "./Pane.tsx"

interface VirtualListProps {
  readonly count: number
  /** The estimated height of a row in pixels, until it is measured. */
  readonly rowHeight: number
  readonly label: string
  readonly row: (index: number) => ComponentChildren
  /** What can be copied of a row, while the pointer or the focus is in it. */
  readonly copies?: (index: number) => CopyProps | undefined
  /** Identifies a row when rows are inserted before it. */
  readonly keyOf: (index: number) => string | number
  /** Whether the end stays in view when rows are added, unless the user has scrolled up. */
  readonly isFollowing?: boolean
  /** Each new number scrolls to the end. */
  readonly endRequest?: number
  readonly onEnd?: () => void
  /** Called with the range of the rendered rows, which includes some rows out of view. */
  readonly onRange?: (first: number, last: number) => void
  /** The row that is scrolled into view when it becomes known; -1 while it is not. */
  readonly presentIndex?: number
  readonly role?: "list" | "log"
  /** Whether the rows are still being loaded. Screen readers do not announce them then. */
  readonly isBusy?: boolean
  /** Changes when rows are added or change their size, so that the end is kept in view. */
  readonly revision?: unknown
}

/** The distance from the end, in pixels, that counts as the end. */
const nearEnd = 60

const order = { axis: "vertical", wraps: false } as const

const controlsIn = (element: Element | null | undefined): ReadonlyArray<HTMLElement> => [
  ...(element?.querySelectorAll<HTMLElement>("a, button") ?? [])
]

const indexOf = (element: Element | null | undefined): number | undefined => {
  const row = element?.closest<HTMLElement>("[data-index]")
  return row == null ? undefined : Number(row.dataset.index)
}

/** The rows in view. The end stays in view if it is followed; otherwise the rows in view stay in place. */
const useRows = (props: VirtualListProps, box: RefObject<HTMLDivElement | null>) => {
  const { count, isFollowing = false, keyOf, onEnd, rowHeight } = props
  const [, redraw] = useState(0)
  const isAtEnd = useRef(true)
  const isScrolled = useRef(false)
  const options = {
    // Between both ends, rows in view stay in place when rows before them are added or removed.
    anchorTo: isScrolled.current && !(isFollowing && isAtEnd.current) ? ("end" as const) : ("start" as const),
    ...{ count, estimateSize: () => rowHeight, getItemKey: keyOf, getScrollElement: () => box.current, overscan: 8 },
    ...{ measureElement, observeElementOffset, observeElementRect, scrollToFn: elementScroll },
    onChange: () => redraw(n => n + 1)
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

  const { presentIndex = -1 } = props
  const isPresent = presentIndex !== -1
  useEffect(() => {
    if (isPresent) virtualizer.scrollToIndex(presentIndex, { align: "auto" })
  }, [isPresent, isPresent && keyOf(presentIndex)])

  const first = rows[0]?.index ?? 0
  const last = rows.at(-1)?.index ?? -1
  useEffect(() => props.onRange?.(first, last), [first, last])
  useEffect(() => {
    if (count > 0 && last >= count - 1) onEnd?.()
  }, [last, count])

  const onScroll = ({ currentTarget }: { readonly currentTarget: HTMLElement }) => {
    const { clientHeight, scrollHeight, scrollTop } = currentTarget
    isScrolled.current = scrollTop > 0
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < nearEnd
  }
  return { virtualizer, rows, total, isAtEnd, onScroll }
}

type List = Virtualizer<HTMLDivElement, HTMLDivElement>

/** Moves the focus among the rows by the arrow keys. Tab skips them. Returns the handler of the keys. */
const useArrowKeys = (box: RefObject<HTMLDivElement | null>, virtualizer: List, count: number, isList: boolean) => {
  useLayoutEffect(() => {
    if (isList) for (const control of controlsIn(box.current)) control.tabIndex = -1
  })
  /** Focuses a row. A row out of view is rendered in one of the next frames. */
  const focus = (index: number, frames = 20): void => {
    const [control] = controlsIn(box.current?.querySelector(`[data-index="${index}"]`))
    if (control !== undefined) control.focus({ preventScroll: true })
    else if (frames > 0) requestAnimationFrame(() => focus(index, frames - 1))
  }
  return (event: KeyboardEvent) => {
    const target = event.target as HTMLElement
    const isInRow = target !== box.current
    if (!isList || (isInRow && !target.matches("a, button"))) return
    const chosen = isInRow ? target : box.current?.querySelector("[aria-current]")
    const present = indexOf(chosen) ?? (isInRow ? 0 : (virtualizer.range?.startIndex ?? 0))
    // From the list itself, both arrows go to the current row.
    const isFirst = !isInRow && /^Arrow(?:Up|Down)$/.test(event.key)
    const next = isFirst ? present : indexAfter(event.key, present, count, order)
    if (next === undefined || !isAlone(event) || count === 0) return
    event.preventDefault()
    virtualizer.scrollToIndex(next)
    focus(next)
  }
}

const rowCopies = (copies: CopyProps | undefined) =>
  copies && (
    <span class="row-copy">
      <CopyMenu {...copies} />
    </span>
  )

export const VirtualList = (props: VirtualListProps) => {
  const { label, role = "list", row } = props
  const box = useRef<HTMLDivElement>(null)
  const { isAtEnd, onScroll, rows, total, virtualizer } = useRows(props, box)
  const onKeyDown = useArrowKeys(box, virtualizer, props.count, role === "list")
  const [pointed, setPointed] = useState<string | number>()
  const point = ({ target }: Event) => {
    const index = indexOf(target as Element)
    if (props.copies !== undefined && index !== undefined) setPointed(props.keyOf(index))
  }
  const copies = (index: number, key: unknown) => (key === pointed ? props.copies?.(index) : undefined)
  return (
    <div
      ref={box}
      class="virtual"
      role={role}
      aria-label={label}
      aria-busy={props.isBusy}
      // Out of the end, rows appear because the user scrolls.
      aria-live={role === "log" && !isAtEnd.current ? "off" : undefined}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onScroll={onScroll}
      onPointerOver={point}
      onFocusIn={point}
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
            {rowCopies(copies(index, key))}
          </div>
        ))}
      </div>
    </div>
  )
}

interface RowListProps extends VirtualListProps {
  readonly isRead: boolean
  readonly problem: string
  readonly empty: string
}

export const RowList = ({ empty, isRead, problem, ...list }: RowListProps) =>
  list.count === 0 ? <p class="empty">{isRead ? empty : problem === "" && "Loading…"}</p> : <VirtualList {...list} />
