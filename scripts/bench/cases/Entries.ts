/** Reads and durable writes of single entries. */
import { Effect } from "effect"
import { type Case, present } from "../Case.ts"
import { compare, underLoad } from "../Compare.ts"
import { type Contender, causeway, etcd, fastify, raw } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as Random from "../load/Random.ts"
import { smallStore } from "../Plan.ts"
import * as Requests from "../Requests.ts"
import { start } from "../Server.ts"
import { scratch, startFilled } from "../Stores.ts"

const connections = 64

const getOf = (contender: Contender) => {
  const random = Random.make(1)
  return contender === etcd
    ? () => Requests.etcd.get(random(smallStore))
    : () => Requests.get(Requests.entryPath(random(smallStore)))
}

const putOf = (contender: Contender) => {
  const random = Random.make(2)
  return contender === etcd
    ? () => Requests.etcd.set(random(smallStore))
    : () => {
        const entry = random(smallStore)
        return Requests.send("PUT", Requests.entryPath(entry), `{"value":${Requests.valueOf(entry)}}`)
      }
}

const started = (contender: Contender) =>
  contender === raw
    ? Effect.flatMap(scratch, directory => start(contender, { directory }))
    : startFilled(contender, smallStore)

const measured = (
  about: { readonly name: string; readonly title: string },
  contenders: ReadonlyArray<Contender>,
  requestOf: (contender: Contender) => () => string
) =>
  Effect.gen(function* () {
    const { present: some, remarks } = yield* present(contenders)
    const entrants = yield* Effect.forEach(some, contender =>
      Effect.map(started(contender), running => underLoad(running, connections, requestOf(contender)))
    )
    const comparison = yield* compare({ ...about, unit: "requests" }, entrants)
    return { ...none, comparisons: [comparison], remarks }
  })

export const get: Case = {
  name: "get",
  about: "GET of one entry",
  run: measured({ name: "get", title: `GET, ${connections} connections` }, [causeway, raw, fastify, etcd], getOf)
}

export const put: Case = {
  name: "put",
  about: "PUT of one entry, on disk before it is answered",
  run: measured({ name: "put", title: `PUT, durable, ${connections} connections` }, [causeway, fastify, etcd], putOf)
}
