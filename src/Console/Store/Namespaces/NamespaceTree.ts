/** Namespaces as a tree: those whose names begin with the same parts between slashes are grouped. */

/** A row of the tree: a namespace, or a group of several, or a namespace that is also the start of others. */
export interface TreeRow<A> {
  /** Unique: the name of the namespace, or what identifies a group. */
  readonly id: string
  /** What the names in the group begin with. */
  readonly start: string
  /** What the names of the groups around it leave out. */
  readonly label: string
  readonly depth: number
  /** The namespace; `undefined` for a group alone. */
  readonly item: A | undefined
  /** The number of namespaces in the group, and whether they are shown; 0 if it is no group. */
  readonly size: number
  readonly isOpen: boolean
}

interface Node<A> {
  readonly children: Map<string, Node<A>>
  item: A | undefined
  size: number
}

const nodeOf = <A>(): Node<A> => ({ children: new Map(), item: undefined, size: 0 })

const treeOf = <A>(items: ReadonlyArray<A>, titleOf: (item: A) => string): Node<A> => {
  const root = nodeOf<A>()
  for (const item of items) {
    let node = root
    for (const part of titleOf(item).split("/")) {
      node.size++
      const child = node.children.get(part) ?? nodeOf<A>()
      node.children.set(part, child)
      node = child
    }
    node.item = item
  }
  return root
}

/** The rows of the tree. Groups are open unless `isClosed` is true of their start, such as `tenant:acme/`. */
export const treeRows = <A>(
  items: ReadonlyArray<A>,
  titleOf: (item: A) => string,
  isClosed: (start: string) => boolean
): ReadonlyArray<TreeRow<A>> => {
  const rows: Array<TreeRow<A>> = []
  const emit = (node: Node<A>, start: string, depth: number): void => {
    for (const [part, first] of node.children) {
      let label = part
      let child = first
      // A part that leads to one name only is no group.
      while (child.item === undefined && child.children.size === 1) {
        const [next, only] = child.children.entries().next().value!
        label += `/${next}`
        child = only
      }
      const path = `${start}${label}`
      const isGroup = child.children.size > 0
      const isOpen = isGroup && !isClosed(`${path}/`)
      // No name has U+0000, so that a group is not taken for the name that ends with its slash.
      const id = child.item === undefined ? `${path}/\u0000` : path
      rows.push({
        id,
        start: `${path}/`,
        label: child.item === undefined ? `${label}/` : label,
        depth,
        item: child.item,
        size: child.size,
        isOpen
      })
      if (isOpen) emit(child, `${path}/`, depth + 1)
    }
  }
  emit(treeOf(items, titleOf), "", 0)
  return rows
}
