import { Effect, type Scope } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { type Contender, causeway } from "../Contender.ts"
import type { Plan } from "../Plan.ts"
import { isPinned } from "../Process.ts"
import { type Running, type StartOptions, start } from "../Server.ts"
import { secret } from "./Clients.ts"

/** The processors of the gateway: one alone, or both, one of which it shares with the load generator. */
export type Processors = "one" | "both"

/** The agents behind the gateway: the variable of their address, and the address. */
export type Agents = Readonly<Record<"AGENT_PLATFORM_URL", string> | Record<"AGENT_URL", string>>

const environment = (agents: Agents) => ({
  ...agents,
  GATEWAY_JWT_SECRET: secret,
  LIMIT_CONNECTIONS: "100000",
  SESSION_HISTORY_EVENTS: "1000000"
})

/** The service with an agent platform. */
const contender = (agents: Agents, processors: Processors): Contender => ({
  ...causeway,
  name: "gateway",
  command: (directory, port) =>
    Effect.map(causeway.command(directory, port), ({ args, env, file }) => {
      const all = { ...env, ...environment(agents) }
      // The process that starts it is pinned to one processor.
      return processors === "both" && isPinned
        ? { file: "taskset", args: ["-c", "0,1", file, ...args], env: all }
        : { file, args, env: all }
    })
})

/** A running gateway and the address of its WebSocket. */
export interface Gateway extends Running {
  readonly url: string
}

/** Starts the gateway until the scope closes. */
export const launch = (
  agents: Agents,
  processors: Processors,
  options: StartOptions
): Effect.Effect<Gateway, BenchFailed, Plan | Scope.Scope> =>
  Effect.map(start(contender(agents, processors), options), running => ({
    ...running,
    url: `ws://127.0.0.1:${running.port}/ws`
  }))
