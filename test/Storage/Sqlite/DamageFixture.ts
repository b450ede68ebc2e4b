/** What is counted and logged of damaged databases. */
import { Effect, Logger, LogLevel, Metric } from "effect"

/** Returns how many operations on a database have met damage. */
export const countedOf = (database: "store" | "session") => (operation: "read" | "write") =>
  Effect.map(
    Metric.value(
      Metric.tagged(
        Metric.counter(`${database}_database_damage_total`, {
          description: `Reads and writes of the ${database} database that met a damaged or unreadable page.`,
          incremental: true
        }),
        "operation",
        operation
      )
    ),
    ({ count }) => count
  )

/** Collects errors of the log. */
export const listening = (lines: Array<string>) =>
  Effect.provide(
    Logger.replace(
      Logger.defaultLogger,
      Logger.make(({ logLevel, message }) => {
        if (LogLevel.greaterThanEqual(logLevel, LogLevel.Error)) lines.push(String(message))
      })
    )
  )
