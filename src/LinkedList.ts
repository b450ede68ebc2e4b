/**
 * Lists in the order of addition, from anywhere in which an element is removed by a few assignments: the elements
 * themselves know their neighbors (an intrusive doubly linked list), so that nothing is allocated.
 */

/** An element, which is in one list at most, and its neighbors there. */
export interface Linked<A> {
  previous: A | undefined
  next: A | undefined
}

export class LinkedList<A extends Linked<A>> {
  oldest: A | undefined = undefined
  newest: A | undefined = undefined

  /** Adds an element that is in no list, as the newest. */
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
