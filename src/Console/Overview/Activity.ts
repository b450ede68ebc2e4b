/** Polls the activity of the service, and keeps the last hour of each node. */
import { computed, signal } from "@preact/signals"
import type { Activity, Holdings, NodeActivity } from "../../Operations/Activity/Model.ts"
import { user } from "../Service/Connection.ts"
import { routes } from "../Service/Page.ts"
import { pause } from "../Service/Pause.ts"
import { source, take } from "../Service/Source.ts"
import { added, type History } from "./History.ts"

/** What each node did, and what the store holds. Either may be older than the other. */
export const activity = source<Activity>()
export const holdings = source<Holdings>()

/** The last hour of each node that answers, by its id. */
export const histories = signal<ReadonlyMap<string, History>>(new Map())

/** Why the last request failed; `""` if it did not. */
export const activityProblem = signal("")

/** The id of the node that is plotted; `undefined` for that which answers. */
export const chosenNode = signal<string | undefined>(undefined)

/** The node that is plotted. */
export const plottedNode = computed((): NodeActivity | undefined => {
  const nodes = activity.value?.value.nodes ?? []
  return nodes.find(({ id }) => id === chosenNode.value) ?? nodes[0]
})

const intervalMs = 5000
const timeoutMs = 8000
const wholeSeconds = 3600

/** More than has passed since the last answer, as clocks may differ. */
const overlapSeconds = 30

class Refused extends Error {}

const read = async (credential: string, seconds: number): Promise<Activity> => {
  const response = await fetch(`${routes.activity}?seconds=${seconds}`, {
    cache: "no-store",
    headers: { authorization: `Bearer ${credential}` },
    signal: AbortSignal.timeout(timeoutMs)
  })
  if (!response.ok) throw new Refused(`The service answers ${response.status} without its figures`)
  return response.json()
}

const add = (found: Activity): void => {
  const known = histories.peek()
  const answering = found.nodes.flatMap(({ id, series, since }) =>
    series === undefined || since === undefined ? [] : [[id, added(known.get(id), since, series)] as const]
  )
  // The past of a node that does not answer stays.
  const silent = found.nodes.flatMap(({ id, series }) => {
    const history = known.get(id)
    return series === undefined && history !== undefined ? [[id, history] as const] : []
  })
  histories.value = new Map([...answering, ...silent])
  take(holdings, found.holdings)
  take(activity, found)
}

/** Polls until the signal is aborted, while the page is visible and the user has a key of the store. */
export const watchActivity = async (ended: AbortSignal): Promise<void> => {
  const { value } = user
  if (routes.activity === undefined || value === undefined || value.store === "none") return
  let answeredAt: number | undefined
  while (!ended.aborted) {
    if (!document.hidden) {
      const passed = answeredAt === undefined ? wholeSeconds : (performance.now() - answeredAt) / 1000
      const startedAt = performance.now()
      try {
        add(await read(value.credential, Math.min(wholeSeconds, Math.ceil(passed) + overlapSeconds)))
        answeredAt = startedAt
        activityProblem.value = ""
      } catch (error) {
        take(holdings, null)
        take(activity, null)
        activityProblem.value = error instanceof Refused ? error.message : "The figures of the service do not arrive"
      }
    }
    await pause(intervalMs, ended)
  }
}
