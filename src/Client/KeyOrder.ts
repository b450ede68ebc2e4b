/** The order of keys and namespaces in lists. It is free of Node and of imports, so that pages can use it. */

const isSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdfff

/**
 * Compares two well-formed texts by their bytes in UTF-8, which is the order of code points and not that of JavaScript.
 * Negative if `a` is first, 0 if they are equal.
 */
export const compare = (a: string, b: string): number => {
  const length = Math.min(a.length, b.length)
  for (let index = 0; index < length; index++) {
    const [x, y] = [a.charCodeAt(index), b.charCodeAt(index)]
    if (x === y) continue
    // Surrogates encode the code points above all others.
    if (isSurrogate(x) !== isSurrogate(y)) return isSurrogate(x) ? 1 : -1
    return x - y
  }
  return a.length - b.length
}
