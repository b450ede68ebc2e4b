import { Context } from "effect"

/** How the benchmark runs. */
export interface PlanShape {
  /** Names of cases; empty means all. */
  readonly names: ReadonlyArray<string>
  readonly rounds: number
  /** Length of each measurement and of the load before the first one. */
  readonly seconds: number
  readonly warmUpSeconds: number
  /** Entries of the large store. */
  readonly entries: number
  /** The compiled service. */
  readonly service: string
  /** The directory of the databases, on the disk that is measured. */
  readonly directory: string
  /** The directory for CPU profiles of the service, if any. */
  readonly profiles: string | undefined
}

/** The plan of this run. */
export class Plan extends Context.Tag("causeway/bench/Plan")<Plan, PlanShape>() {}

/** Entries of the small stores. */
export const smallStore = 10_000
