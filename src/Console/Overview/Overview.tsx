/** The state of the service: its health, its dependencies, and its activity. */
import type { ComponentChildren } from "preact"
import { useMemo } from "preact/hooks"
import { type Dependency, health, isReachable, isStoreReady, type Status } from "../Service/Health.ts"
import { SecretForm } from "../Widgets/Shell.tsx"
import { bytes, count, duration, millis, short } from "../Widgets/Text.ts"
import { type BreakerState, breakersOf, type Figures } from "./Figures.ts"
import { history, isTryingToken, latest, metricsRefusal, metricsState, useMetricsToken } from "./Metrics.ts"
import { Plot, type PlotProps } from "./Plot.tsx"

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
  const report = health.value
  if (isReachable.value === false) {
    return (
      <section class="panel summary" data-tone="bad">
        <h2>The service does not answer</h2>
        <p class="muted">The page retries every one to two seconds and recovers by itself.</p>
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
  agent_platform_cleanup: "Stopping of agent instances",
  inference: "Inference",
  replication: "Replication"
}

const store = (): ReadonlyArray<Dependency> => {
  if (health.value === undefined || isStoreReady.value === undefined) return []
  const failure = { status: "unhealthy", error: "Not ready; writes are answered 503" } as const
  return [{ name: "store", ...(isStoreReady.value ? { status: "ok" } : failure) }]
}

const unbroken = new Set(["store", "replication"])

/** The state of a dependency whose breaker is not in the metrics. */
const withoutBreaker = (name: string): string => {
  if (unbroken.has(name) || latest.value !== undefined) return "none"
  return metricsState.value === "unknown" || metricsState.value === "shown" ? "unknown" : "unknown: no metrics"
}

const Dependencies = () => {
  const dependencies = [...store(), ...(health.value?.dependencies ?? [])]
  const breakers = latest.value === undefined ? [] : breakersOf(latest.value)
  const rows = new Map<string, { readonly dependency?: Dependency; readonly breaker?: BreakerState }>()
  for (const dependency of dependencies) rows.set(dependency.name, { dependency })
  for (const { name, state } of breakers) rows.set(name, { ...rows.get(name), breaker: state })
  return (
    <section class="panel">
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
              {[...rows].map(([name, { breaker, dependency }]) => (
                <tr key={name}>
                  <th scope="row">{names[name] ?? name}</th>
                  <td>
                    {dependency === undefined ? (
                      <span class="muted">not probed</span>
                    ) : (
                      <>
                        <span class={`badge ${toneOf[dependency.status]}`}>{dependency.status}</span>{" "}
                        <span class="muted">{dependency.error}</span>
                      </>
                    )}
                  </td>
                  <td>
                    {breaker === undefined ? (
                      <span class="muted">{withoutBreaker(name)}</span>
                    ) : (
                      <span class={`badge ${toneOf[breaker]}`}>{breaker}</span>
                    )}
                  </td>
                  <td class="number">{dependency?.latencyMs === undefined ? "" : millis(dependency.latencyMs)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  )
}

const perSecond = (value: number): string => `${short(value)}/s`

const labels: Readonly<Record<string, string>> = {
  refused: "refused (4xx)",
  commitP99: "commit p99",
  eventLoop: "p99",
  heap: "heap in use"
}

interface Described extends Omit<PlotProps, "lines" | "times"> {
  /** The figures, with the numbers of their colors. */
  readonly colors: Partial<Record<keyof Figures, number>>
}

const plots: ReadonlyArray<Described> = [
  {
    ...{ title: "Requests", hint: "Excluding probes, scrapes and pages", format: perSecond, isFilled: true },
    colors: { succeeded: 1, refused: 3, failed: 4 }
  },
  {
    ...{ title: "Latency", hint: "Excluding long polls and streams", format: millis },
    colors: { p50: 1, p95: 2, p99: 3, commitP99: 4 }
  },
  {
    ...{ title: "Commits", hint: "Writes are committed in groups", format: perSecond, isFilled: true },
    colors: { writes: 1, commits: 2 }
  },
  {
    ...{ title: "Change feed", hint: "Followers, and changes not yet sent to the slowest WebSocket", format: short },
    colors: { followers: 1, lag: 3, connections: 2 }
  },
  {
    ...{ title: "Event loop delay", hint: "99th percentile of the last ten seconds", format: millis, isFilled: true },
    colors: { eventLoop: 2 }
  },
  {
    ...{ title: "Memory", format: bytes, isFilled: true },
    steps: Array.from({ length: 20 }, (_, power) => 2 ** (20 + power)),
    colors: { resident: 1, heap: 2 }
  }
]

const Plots = () => {
  const figures = history.value
  const times = useMemo(() => figures.map(({ at }) => at), [figures])
  const linesOf = (colors: Described["colors"]) =>
    Object.entries(colors).map(([name, color]) => ({
      label: labels[name] ?? name,
      color: `--series-${color}`,
      values: figures.map(figure => figure[name as keyof Figures])
    }))
  return (
    <div class="plots">
      {plots.map(({ colors, ...plot }) => (
        <Plot {...plot} times={times} lines={linesOf(colors)} />
      ))}
    </div>
  )
}

const Activity = () => {
  const { value: state } = metricsState
  if (state !== "hidden" && state !== "locked") return <Plots />
  return (
    <section class="panel">
      <h2>Activity</h2>
      {state === "hidden" ? (
        <p class="muted pad">
          Metrics are disabled. Start the service with <code>METRICS_PROMETHEUS=true</code> to see plots here.
        </p>
      ) : (
        <>
          <p class="muted pad">The metrics require a separate token (METRICS_TOKEN).</p>
          <div class="pad">
            <SecretForm
              label="Metrics token"
              action="Show metrics"
              hint="Stored for this tab only."
              isBusy={isTryingToken.value}
              problem={metricsRefusal.value}
              onGiven={useMetricsToken}
            />
          </div>
        </>
      )}
    </section>
  )
}

export const Overview = () => (
  <div class="scroll-view">
    <h1 class="visually-hidden">Overview</h1>
    <Summary />
    <Dependencies />
    <Activity />
  </div>
)
