/** The edge of a pane, by which its width is changed. The width is kept for this browser. */
import { useEffect, useRef, useState } from "preact/hooks"

/** The width in pixels. */
const least = 160
const most = 640
const step = 16

const bounded = (width: number): number => Math.round(Math.min(most, Math.max(least, width)))

const storageName = (variable: string): string => `causeway.width${variable}`

interface Props {
  readonly label: string
  /** The property of the style sheet with the width, which the parent of the pane gets. */
  readonly variable: string
}

export const Splitter = ({ label, variable }: Props) => {
  const edge = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState<number | undefined>(() => {
    const stored = Number(localStorage.getItem(storageName(variable)) ?? Number.NaN)
    return Number.isFinite(stored) ? bounded(stored) : undefined
  })
  const pane = () => edge.current?.parentElement
  const present = () => pane()?.offsetWidth ?? least

  useEffect(() => {
    if (width === undefined) pane()?.parentElement?.style.removeProperty(variable)
    else pane()?.parentElement?.style.setProperty(variable, `${width}px`)
  }, [width])

  const change = (wanted: number | undefined) => {
    const next = wanted === undefined ? undefined : bounded(wanted)
    setWidth(next)
    if (next === undefined) localStorage.removeItem(storageName(variable))
    else localStorage.setItem(storageName(variable), String(next))
  }

  const drag = (event: PointerEvent) => {
    if (event.button !== 0) return
    event.preventDefault()
    const ended = new AbortController()
    const { signal } = ended
    const start = present() - event.clientX
    addEventListener("pointermove", moved => change(start + moved.clientX), { signal })
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => ended.abort(), { signal })
  }

  return (
    <div
      ref={edge}
      class="splitter"
      role="separator"
      aria-orientation="vertical"
      aria-label={label}
      aria-valuemin={least}
      aria-valuemax={most}
      aria-valuenow={width ?? present()}
      tabIndex={0}
      title="Drag to change the width; a double click restores it"
      onPointerDown={drag}
      onDblClick={() => change(undefined)}
      onKeyDown={({ key }) => {
        if (key === "ArrowLeft") change(present() - step)
        if (key === "ArrowRight") change(present() + step)
      }}
    />
  )
}
