/** Replaces a module that is never called in a bundle. */
export default {}

export const parse = (): never => {
  throw new Error("This is not part of the package")
}

export const stringify = parse
