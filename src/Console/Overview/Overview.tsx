/** The state of the service: its health, its dependencies, what it holds, and its activity. */
import { type ComponentChildren, Fragment } from "preact"
import type { BreakerState } from "../../Operations/Activity/Model.ts"
import { user } from "../Service/Connection.ts"
import { type Dependency, health, isReachable, isStoreReady, type Status } from "../Service/Health.ts"
import { routes } from "../Service/Page.ts"
import { Banner } from "../Widgets/Controls.tsx"
import { bytes, count, duration, millis } from "../Widgets/Text.ts"
import { activity, activityProblem } from "./Activity.ts"
import { Dated } from "./Dated.tsx"
import { Largest, Nodes, Tiles } from "./Holdings.tsx"
import { Plots } from "./Plots.tsx"

const toneOf: Readonly<Record<Status | BreakerState, string>> = {
  ok: "good",
  degraded: "warn",
  unhealthy: "bad",
  closed: "good",
  "half-open": "warn",
  open: "bad"
}

const summaries: Readonly<Record<Status, string>> = {
  ok: "Everything works",
  degraded: "A dependency is degraded",
  unhealthy: "The agent platform is unreachable"
}

const Fact = ({ children, name }: { readonly name: string; readonly children: ComponentChildren }) => (
  <div class="fact">
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
)

const Summary = () => {
  const report = health.value?.value
  if (isReachable.value === false) {
    return (
      <section class="panel summary" data-tone="bad" role="status">
        <h2>The service does not answer</h2>
        <p class="muted">The page tries again every one to two seconds.</p>
      </section>
    )
  }
  if (report === undefined) return <section class="panel summary" aria-busy="true" />
  const isStoreDown = isStoreReady.value === false
  return (
    <section class="panel summary" data-tone={isStoreDown ? "bad" : toneOf[report.status]}>
      <h2>{isStoreDown ? "The store is unavailable" : summaries[report.status]}</h2>
      <dl class="facts">
        <Fact name="Status">{report.status}</Fact>
        <Fact name="Up for">{duration(report.uptime)}</Fact>
        <Fact name="Memory">{bytes(report.memory.rss)}</Fact>
        <Fact name="Subscriptions">{count(report.connections)}</Fact>
        <Fact name="Version">{report.version}</Fact>
      </dl>
    </section>
  )
}

const names: Readonly<Record<string, string>> = {
  store: "Store",
  agent_platform: "Agent platform",
  agent_platform_cleanup: "Stops of agent instances",
  inference: "Inference",
  replication: "Replication"
}

const store = (): ReadonlyArray<Dependency> => {
  if (health.value === undefined || isStoreReady.value === undefined) return []
  const failure = { status: "unhealthy", error: "Not ready; writes are answered 503" } as const
  return [{ name: "store", ...(isStoreReady.value ? { status: "ok" } : failure) }]
}

/** Dependencies without a circuit breaker. */
const unbroken = new Set(["store", "replication"])

/** The breakers that no dependency has, such as that of stops, are shown while they explain something. */
const isShown = ({ state }: { readonly state: BreakerState }, isDependency: boolean): boolean =>
  isDependency || state !== "closed"

interface Row {
  readonly dependency?: Dependency
  readonly breaker?: BreakerState
  readonly address?: string
}

const titleOf = (name: string): string => names[name] ?? name.replace(/^agent_platform\//, "Agent ")

const Dependencies = () => {
  const dependencies = [...store(), ...(health.value?.value.dependencies ?? [])]
  const rows = new Map<string, Row>()
  for (const dependency of dependencies) rows.set(dependency.name, { dependency })
  for (const { address, agentType } of activity.value?.value.agents ?? []) {
    const name = agentType === null ? "agent_platform" : `agent_platform/${agentType}`
    rows.set(name, { ...rows.get(name), address })
  }
  for (const breaker of activity.value?.value.nodes[0]?.breakers ?? []) {
    const known = rows.get(breaker.name)
    if (isShown(breaker, known !== undefined)) rows.set(breaker.name, { ...known, breaker: breaker.state })
  }
  return (
    <Dated of={health.value}>
      <h2>Dependencies</h2>
      {rows.size === 0 ? (
        <p class="muted pad">None configured.</p>
      ) : (
        <div class="table-box" tabIndex={0} role="region" aria-label="Dependencies">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Service</th>
                <th scope="col">Health</th>
                <th scope="col">Circuit breaker</th>
                <th scope="col" class="number">
                  Latency
                </th>
              </tr>
            </thead>
            <tbody>
              {[...rows].map(([name, { address, breaker, dependency }]) => (
                <Fragment key={name}>
                  <tr>
                    <th scope="row">
                      {titleOf(name)}
                      {address !== undefined && <div class="address">{address}</div>}
                    </th>
                    <td>
                      {dependency === undefined ? (
                        <span class="muted">not probed</span>
                      ) : (
                        <span class={`badge ${toneOf[dependency.status]}`}>{dependency.status}</span>
                      )}
                    </td>
                    <td data-stale={activity.value?.isOld}>
                      {breaker === undefined ? (
                        <span class="muted">{unbroken.has(name) || activity.value !== undefined ? "none" : "–"}</span>
                      ) : (
                        <span class={`badge ${toneOf[breaker]}`}>{breaker}</span>
                      )}
                    </td>
                    <td class="number">{dependency?.latencyMs === undefined ? "" : millis(dependency.latencyMs)}</td>
                  </tr>
                  {dependency?.error !== undefined && (
                    <tr class="problem">
                      <td colSpan={4}>{dependency.error}</td>
                    </tr>
                  )}
                </Fragment>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Dated>
  )
}

const hasFigures = (): boolean => routes.activity !== undefined && user.value?.store !== "none"

export const Overview = () => (
  <div class="scroll-view overview">
    <h1 class="visually-hidden">Overview</h1>
    <Summary />
    <Banner tone="warn" text={isReachable.value === false ? "" : activityProblem.value} />
    {hasFigures() && <Tiles />}
    <div class="overview-panels">
      <Dependencies />
      <Largest />
    </div>
    <Nodes />
    {hasFigures() ? (
      <Plots />
    ) : (
      <p class="muted">The figures of the service need a key of the store; this credential is for sessions only.</p>
    )}
  </div>
)
