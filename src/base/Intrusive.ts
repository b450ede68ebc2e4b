/**
 * Collections whose elements have the links themselves, so that removing one takes a few assignments and allocates
 * nothing: doubly linked lists in the order of addition, and arrays without an order.
 */
/** An element, which is in one list at most, and its neighbors there. */
export interface Linked<A> {
  previous: A | undefined
  next: A | undefined
}

export class LinkedList<A extends Linked<A>> {
  oldest: A | undefined = undefined
  newest: A | undefined = undefined

  /** Appends an element that is in no list. */
  add(element: A): void {
    const { newest } = this
    element.previous = newest
    if (newest === undefined) this.oldest = element
    else newest.next = element
    this.newest = element
  }

  /** Removes an element of this list. */
  remove(element: A): void {
    const { next, previous } = element
    if (previous === undefined) this.oldest = next
    else previous.next = next
    if (next === undefined) this.newest = previous
    else next.previous = previous
    element.previous = undefined
    element.next = undefined
  }
}

/** An array element that stores its index, so that it is found at once; -1 while it is in no array. */
export interface Indexed {
  index: number
}

/** Adds an element at the end. */
export const append = <A extends Indexed>(array: Array<A>, element: A): void => {
  element.index = array.length
  array.push(element)
}

/** Removes an element; the last one moves to its index. */
export const remove = <A extends Indexed>(array: Array<A>, element: A): void => {
  const last = array.pop()!
  if (last !== element) {
    array[element.index] = last
    last.index = element.index
  }
  element.index = -1
}
