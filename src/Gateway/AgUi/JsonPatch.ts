/** Whether a value is a JSON Patch (RFC 6902), which clients of AG-UI require of a `STATE_DELTA`. */
import { isObject } from "../../base/Json/Parsing.ts"

const isPointer = (value: unknown): boolean => typeof value === "string" && /^(?:\/(?:[^/~]|~[01])*)*$/.test(value)

const isOperation = (operation: unknown): boolean => {
  if (!isObject(operation) || !isPointer(operation.path)) return false
  switch (operation.op) {
    case "add":
    case "replace":
    case "test":
      return "value" in operation
    case "remove":
      return true
    case "move":
    case "copy":
      return isPointer(operation.from)
    default:
      return false
  }
}

export const isPatch = (value: unknown): value is ReadonlyArray<object> =>
  Array.isArray(value) && value.every(isOperation)
