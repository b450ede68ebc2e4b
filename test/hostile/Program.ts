/** The hostile clients as a process of their own, so that what they cost is not taken from the honest ones' time. */
import { setMaxListeners } from "node:events"
import { attacks } from "./Attacks.ts"

/** What this process is told: to begin an attack on a port, or to end it. */
export type Order = { readonly attack: string; readonly port: number; readonly strength: number } | "end"

let ending = new AbortController()

const obey = async (order: Order) => {
  if (order === "end") {
    ending.abort()
    ending = new AbortController()
  } else {
    setMaxListeners(0, ending.signal)
    await attacks[order.attack]?.(order.port, ending.signal, order.strength)
  }
  process.send?.("done")
}

process.on("message", order => void obey(order as Order))
process.on("disconnect", () => process.exit())
