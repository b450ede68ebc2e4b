import { useEffect, useState } from "preact/hooks"

/** How long typing must rest before anything is done about it. */
const typingMs = 200

/** A value once it has not changed for a moment, such as a text that is being typed. */
export const useRested = <A>(value: A): A => {
  const [rested, setRested] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), typingMs)
    return () => clearTimeout(timer)
  }, [value])
  return rested
}
