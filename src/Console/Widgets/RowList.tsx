/** A virtual list, or a note if it has no rows. */
import { VirtualList, type VirtualListProps } from "./VirtualList.tsx"

interface Props extends VirtualListProps {
  /** Whether the rows have been loaded. */
  readonly isRead: boolean
  /** Why they cannot be loaded; `""` if they can. */
  readonly problem: string
  /** The note for a list that has been loaded and is empty. */
  readonly empty: string
}

export const RowList = ({ empty, isRead, problem, ...list }: Props) =>
  list.count === 0 ? <p class="empty">{isRead ? empty : problem === "" && "Loading…"}</p> : <VirtualList {...list} />
