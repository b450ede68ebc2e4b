import { useEffect, useState } from "preact/hooks"

const delayMs = 200

/** A value after it has not changed for 200 ms, such as a text that is being typed. */
export const useDebounced = <A>(value: A): A => {
  const [debounced, setDebounced] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(value), delayMs)
    return () => clearTimeout(timer)
  }, [value])
  return debounced
}
