/**
 * Clients of `pg`, which are made without an exception.
 */
import pg from "pg"

/** A client that only fails to connect. It has no address and reads no files. */
const unusable = (error: unknown): pg.Client => {
  const config = { host: "localhost", ssl: false, sslnegotiation: "postgres" } satisfies pg.ClientConfig
  const connect = (callback?: (error: unknown) => void): Promise<never> | undefined => {
    if (callback === undefined) return Promise.reject(error)
    process.nextTick(callback, error)
    return undefined
  }
  return Object.assign(new pg.Client(config), { connect: connect as pg.Client["connect"] })
}

/**
 * Makes a client. The constructor of `pg.Client` reads the files that `sslrootcert`, `sslcert` and `sslkey` name, and
 * throws if it cannot. Such a file may be missing for a moment while it is replaced. Here that is a failure of
 * `connect`, like any other reason why there is no connection. Each client reads the files again.
 */
export const make = (config: pg.ClientConfig): pg.Client => {
  try {
    return new pg.Client(config)
  } catch (error) {
    return unusable(error)
  }
}

/** `make` as the constructor that a pool of `pg` calls, where nothing catches an exception. */
function PoolClient(config: pg.ClientConfig): pg.Client {
  return make(config)
}

/** The option of a pool by which it makes its clients. The types of `pg` declare no parameters of the constructor. */
export const forPool = { Client: PoolClient as unknown as new () => pg.ClientBase }
