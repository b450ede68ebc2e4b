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
