/** The order of keys in lists: byte order of UTF-8, which is that of code points. */
export const compareKeys = (a: string, b: string): number => {
  const length = Math.min(a.length, b.length)
  for (let i = 0; i < length; i++) {
    const [x, y] = [a.charCodeAt(i), b.charCodeAt(i)]
    if (x === y) continue
    // Surrogates stand for code points above all others.
    const isHigh = (code: number) => code >= 0xd800 && code <= 0xdfff
    if (isHigh(x) !== isHigh(y)) return isHigh(x) ? 1 : -1
    return x - y
  }
  return a.length - b.length
}
