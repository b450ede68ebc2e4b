/**
 * Database commands at level debug: the text of statements, without the values of their parameters.
 */
import { performance } from "node:perf_hooks"
import type { DebugLog } from "../../../base/Observability/DebugLog.ts"

const message = "Database command"

/** The maximum number of characters of a statement in the log. */
const longest = 500

const methods: ReadonlySet<string | symbol> = new Set(["run", "get", "all", "iterate"])

/** The milliseconds since a moment, with microseconds. */
const since = (start: number): number => Math.round((performance.now() - start) * 1000) / 1000

interface Statement {
  readonly source: string
}

const isStatement = (value: object): value is Statement =>
  "source" in value && typeof value.source === "string" && "run" in value

const logged = (statement: Statement, database: string, debug: DebugLog): Statement => {
  const command = statement.source.replace(/\s+/g, " ").trim().slice(0, longest)
  return new Proxy(statement, {
    get: (target, name) => {
      const member: unknown = Reflect.get(target, name, target)
      if (typeof member !== "function") return member
      const bound = member.bind(target)
      if (!methods.has(name)) return bound
      return (...parameters: ReadonlyArray<unknown>): unknown => {
        const start = performance.now()
        let outcome = "failed"
        try {
          const result: unknown = bound(...parameters)
          outcome = "ok"
          return result
        } finally {
          debug(message, { database, command, outcome, millis: since(start) })
        }
      }
    }
  })
}

/**
 * Makes prepared statements, in objects of any depth, log each use. Without a log, returns them unchanged. The time of
 * an iteration is that of its start.
 */
export const statements = <S extends object>(prepared: S, database: string, debug: DebugLog | undefined): S => {
  if (debug === undefined) return prepared
  const entries = Object.entries(prepared).map(([name, value]: [string, unknown]) => {
    if (typeof value !== "object" || value === null) return [name, value]
    return [name, isStatement(value) ? logged(value, database, debug) : statements(value, database, debug)]
  })
  return Object.fromEntries(entries) as S
}

/** Starts the time of a command that is answered later. The returned function logs it with its outcome. */
export const command = (database: string, debug: DebugLog, detail: Readonly<Record<string, unknown>>) => {
  const start = performance.now()
  return (outcome: string): void => debug(message, { database, ...detail, outcome, millis: since(start) })
}
