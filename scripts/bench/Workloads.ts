/**
 * The loads that the service is measured under, each a sequence of requests for a store of {@link smallStore} entries.
 */
import * as Random from "./load/Random.ts"
import { smallStore } from "./Plan.ts"
import * as Requests from "./Requests.ts"

/** A closed loop of requests. */
export interface Workload {
  readonly name: string
  readonly title: string
  readonly connections: number
  /** Makes the sequence of requests, which is the same each time. */
  readonly requests: () => () => string
}

const reading = (entries: number) => () => {
  const random = Random.make(1)
  return () => Requests.get(Requests.entryPath(random(entries)))
}

export const get: Workload = {
  name: "get",
  title: "GET, 64 connections",
  connections: 64,
  requests: reading(smallStore)
}

export const getHot: Workload = {
  name: "get-hot",
  title: "GET of the same 100 entries, 64 connections",
  connections: 64,
  requests: reading(100)
}

export const put: Workload = {
  name: "put",
  title: "PUT, durable, 64 connections",
  connections: 64,
  requests: () => {
    const random = Random.make(2)
    return () => {
      const entry = random(smallStore)
      return Requests.send("PUT", Requests.entryPath(entry), `{"value":${Requests.valueOf(entry)}}`)
    }
  }
}

/** Entries in a batch, and changes on a page. */
export const pageSize = 100

export const batch: Workload = {
  name: "batch",
  title: "batch of 100, 16 connections",
  connections: 16,
  requests: () => {
    const random = Random.make(3)
    return () => {
      const entries = Array.from({ length: pageSize }, () => random(smallStore))
      return Requests.send("POST", "/api/v1/batch", Requests.batchOf(entries))
    }
  }
}

/** The path of a page of changes. */
export const changesPath = (after: number): string => `/api/v1/changes?after=${after}&limit=${pageSize}`

export const changes: Workload = {
  name: "changes",
  title: "page of 100 changes near the log's end, 64 connections",
  connections: 64,
  requests: () => {
    const random = Random.make(4)
    // Readers that keep up are at different positions near the end.
    return () => Requests.get(changesPath(smallStore - pageSize * (1 + random(32))))
  }
}

export const changesAnywhere: Workload = {
  name: "changes-anywhere",
  title: "page of 100 changes anywhere in the log, 64 connections",
  connections: 64,
  requests: () => {
    const random = Random.make(5)
    return () => Requests.get(changesPath(random(smallStore - pageSize)))
  }
}

export const list: Workload = {
  name: "list",
  title: "list of 1,000 entries, 16 connections",
  connections: 16,
  requests: () => {
    const random = Random.make(6)
    return () => Requests.get(Requests.listPath(random(smallStore)))
  }
}

/** All workloads. */
export const all: ReadonlyArray<Workload> = [get, getHot, put, batch, changes, changesAnywhere, list]
