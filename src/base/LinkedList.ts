/**
 * Intrusive doubly linked lists in the order of addition. Removing an element takes a few assignments and allocates
 * nothing, because the elements themselves have the links.
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
