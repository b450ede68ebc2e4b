import { Effect, type Scope } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { type Contender, causeway } from "../Contender.ts"
import type { Plan } from "../Plan.ts"
import { isPinned } from "../Process.ts"
import { type Running, type StartOptions, start } from "../Server.ts"
import { secret } from "./Clients.ts"

/** Which processors the gateway may use: one to itself, or both, of which the load generator has one too. */
export type Processors = "one" | "both"

const environment = (platformUrl: string) => ({
  AGENT_PLATFORM_URL: platformUrl,
  GATEWAY_JWT_SECRET: secret,
  LIMIT_CONNECTIONS: "100000",
  SESSION_HISTORY_EVENTS: "1000000"
})

/** The service as a gateway to a platform. */
const contender = (platformUrl: string, processors: Processors): Contender => ({
  ...causeway,
  name: "gateway",
  command: (directory, port) =>
    Effect.map(causeway.command(directory, port), ({ args, env, file }) => {
      const all = { ...env, ...environment(platformUrl) }
      // What starts it has one processor; this gives it the other one back.
      return processors === "both" && isPinned
        ? { file: "taskset", args: ["-c", "0,1", file, ...args], env: all }
        : { file, args, env: all }
    })
})

/** A gateway that runs, and its WebSocket's address. */
export interface Gateway extends Running {
  readonly url: string
}

/** Starts the gateway until the scope closes. */
export const launch = (
  platformUrl: string,
  processors: Processors,
  options: StartOptions
): Effect.Effect<Gateway, BenchFailed, Plan | Scope.Scope> =>
  Effect.map(start(contender(platformUrl, processors), options), running => ({
    ...running,
    url: `ws://127.0.0.1:${running.port}/ws`
  }))
