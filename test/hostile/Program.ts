/** The process of the hostile clients, so that their work does not delay the honest ones. */
import { setMaxListeners } from "node:events"
import { attacks } from "./Attacks.ts"

/** A command to this process: begin an attack on a port, or end it. */
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
