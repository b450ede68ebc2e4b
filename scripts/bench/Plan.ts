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
  /** Where databases lie; they are on the disk that is measured. */
  readonly directory: string
  /** A profile of the service is written here, where it is wanted. */
  readonly profiles: string | undefined
}

/** The plan of this run. */
export class Plan extends Context.Tag("causeway/bench/Plan")<Plan, PlanShape>() {}

/** Entries of the small stores. */
export const smallStore = 10_000
