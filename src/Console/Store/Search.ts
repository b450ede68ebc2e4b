/** Searching a list of names. */
import { useEffect, useMemo, useRef } from "preact/hooks"
import { useDebounced } from "../Widgets/Debounce.ts"
import type { NameList } from "./NameList.ts"
import { pollLogEnd } from "./Namespaces.ts"

export interface Search<A> {
  /** All names, or those that the service has found. */
  readonly list: NameList<A>
  readonly items: ReadonlyArray<A>
  /** Whether the service searches, because not all names are known. It finds names that start with the text. */
  readonly isRemote: boolean
  /** Whether a page has been read. */
  readonly isRead: boolean
  /** Why the names cannot be read; `""` if they can. */
  readonly problem: string
  /** Sets the rows in view and their names, so that they are kept up to date. */
  readonly show: (nameOf: (index: number) => string | undefined) => (first: number, last: number) => void
}

/** Opens a list, and closes it when it is no longer shown. */
const useList = <A>(open: () => NameList<A> | undefined, inputs: ReadonlyArray<unknown>): NameList<A> | undefined => {
  const list = useMemo(open, inputs)
  useEffect(() => {
    void list?.loadMore()
    return () => list?.close()
  }, [list])
  return list
}

/**
 * Searches the names of a part of the store. If all names are known, the caller filters them. Otherwise `open` lists the
 * names that start with the text.
 */
export const useSearch = <A>(part: unknown, text: string, open: (text: string) => NameList<A>): Search<A> => {
  const all = useList(() => open(""), [part])!
  const typed = useDebounced(text)
  const isRemote = text !== "" && all.isRead.value && !all.isComplete.value
  const found = useList(() => (isRemote && typed !== "" ? open(typed) : undefined), [part, isRemote, typed])
  const list = found?.isRead.value ? found : all
  const nameAt = useRef<(index: number) => string | undefined>(() => undefined)
  const rows = useRef({ first: 0, last: -1 })
  useEffect(() => {
    const ended = new AbortController()
    void pollLogEnd(ended.signal, end => {
      const { first, last } = rows.current
      void list.refresh(end, nameAt.current(first), nameAt.current(last))
    })
    return () => ended.abort()
  }, [list])
  return {
    list,
    items: list.items.value,
    isRemote,
    isRead: all.isRead.value,
    problem: found?.problem.value || all.problem.value,
    show: nameOf => {
      nameAt.current = nameOf
      return (first, last) => {
        rows.current = { first, last }
      }
    }
  }
}
