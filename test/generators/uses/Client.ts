/** What the client that each generator makes is used for. */
export interface Client {
  readonly set: (at: Place, value: unknown, ifMatch?: string) => Promise<Outcome>
  readonly get: (at: Place) => Promise<Outcome>
  readonly keys: (namespace: string) => Promise<ReadonlyArray<string>>
  /** Sets one key and deletes another. */
  readonly batch: (namespace: string, set: string, removed: string) => Promise<number>
  readonly changesAfter: (after: number) => Promise<ReadonlyArray<number>>
  readonly remove: (at: Place) => Promise<boolean>
}

export interface Place {
  readonly namespace: string
  readonly key: string
}

/** A version, or the error of the answer. */
export type Outcome = { readonly version: number; readonly value: unknown } | { readonly error: string }

export type Make = (url: string, token: string) => Client

/** The header of a precondition. */
export const condition = (ifMatch?: string): Record<string, string> =>
  ifMatch === undefined ? {} : { "if-match": ifMatch }

/** The data of an answer that must be there. */
export const wanted = <A>(data: A | undefined): A => {
  if (data === undefined) throw new Error("There is no data")
  return data
}
