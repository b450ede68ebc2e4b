/** The bytes of requests, and the stored entries. */
import { key } from "./Contender.ts"

/** Entries per namespace. */
export const areaSize = 1000

/** The namespace of an entry by its number. */
export const namespaceOf = (entry: number): string => `tenant:bench/area-${Math.floor(entry / areaSize)}`

/** The key of an entry by its number. */
export const keyOf = (entry: number): string => `item-${String(entry % areaSize).padStart(3, "0")}`

/** A value of about 120 bytes, as text. */
export const valueOf = (entry: number): string =>
  `{"name":"item ${entry}","count":${entry},"price":12.5,"tags":["alpha","beta"],"active":true,"note":"a note of some length"}`

/** A batch that sets entries. */
export const batchOf = (entries: ReadonlyArray<number>): string => {
  const operations = entries.map(
    entry => `{"op":"set","namespace":"${namespaceOf(entry)}","key":"${keyOf(entry)}","value":${valueOf(entry)}}`
  )
  return `{"operations":[${operations.join(",")}]}`
}

const host = "HTTP/1.1\r\nhost: 127.0.0.1\r\n"
const authorized = `${host}authorization: Bearer ${key}\r\n`

const withBody = (method: string, path: string, head: string, body: string): string =>
  `${method} ${path} ${head}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`

/** A GET. */
export const get = (path: string): string => `GET ${path} ${authorized}\r\n`

/** A request with a JSON body in ASCII. */
export const send = (method: "PUT" | "POST", path: string, body: string): string =>
  withBody(method, path, authorized, body)

/** The path of an entry by its number. */
export const entryPath = (entry: number): string =>
  `/api/v1/kv/tenant%3Abench%2Farea-${Math.floor(entry / areaSize)}/${keyOf(entry)}`

/** The path of the namespace of an entry by its number. */
export const listPath = (entry: number): string => `/api/v1/kv/tenant%3Abench%2Farea-${Math.floor(entry / areaSize)}`

const base64 = (text: string): string => Buffer.from(text).toString("base64")

const etcdKey = (entry: number): string => base64(`${namespaceOf(entry)}/${keyOf(entry)}`)

/** The requests of etcd's gateway (its API reference, v3). */
export const etcd = {
  get: (entry: number): string => withBody("POST", "/v3/kv/range", host, `{"key":"${etcdKey(entry)}"}`),
  set: (entry: number): string =>
    withBody("POST", "/v3/kv/put", host, `{"key":"${etcdKey(entry)}","value":"${base64(valueOf(entry))}"}`),
  /** The body of a transaction that sets entries; etcd accepts at most 128. */
  batch: (entries: ReadonlyArray<number>): string => {
    const puts = entries.map(entry => `{"requestPut":{"key":"${etcdKey(entry)}","value":"${base64(valueOf(entry))}"}}`)
    return `{"success":[${puts.join(",")}]}`
  }
} as const

const redisPath = (command: "GET" | "SET", entry: number): string =>
  `/${command}/${encodeURIComponent(namespaceOf(entry))}%2F${keyOf(entry)}`

/** The requests of webdis (its README). */
export const webdis = {
  get: (entry: number): string => `GET ${redisPath("GET", entry)} ${host}\r\n`,
  set: (entry: number): string => withBody("PUT", redisPath("SET", entry), host, valueOf(entry)),
  /** The path and the body that set entries. */
  fill: (entries: ReadonlyArray<number>): string =>
    `MSET/${entries.flatMap(entry => [`${namespaceOf(entry)}/${keyOf(entry)}`, valueOf(entry)].map(encodeURIComponent)).join("/")}`
} as const
