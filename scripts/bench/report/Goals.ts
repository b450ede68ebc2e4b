import { type Comparison, type Findings, median, type Quantity, ratios, type Sample } from "../Findings.ts"
import { plain, range } from "./Numbers.ts"

/** A goal and its measurement. */
export interface Verdict {
  readonly goal: string
  readonly measured: string
  readonly isMet: boolean
}

type Judge = (findings: Findings) => Omit<Verdict, "goal"> | undefined

interface Goal {
  readonly goal: string
  readonly judge: Judge
}

const comparisonOf = ({ comparisons }: Findings, name: string): Comparison | undefined =>
  comparisons.find(comparison => comparison.name === name)

const quantityOf = ({ quantities }: Findings, name: string, contender = "causeway"): Quantity | undefined =>
  quantities.find(quantity => quantity.name === name && quantity.contender === contender)

const throughput = (sample: Sample): number => sample.perSecond

/** The median over the rounds of the ratio to a peer. */
const compared =
  (
    name: string,
    peer: string,
    isMet: (ratio: number) => boolean,
    figure: (sample: Sample) => number,
    contender = "causeway"
  ): Judge =>
  findings => {
    const comparison = comparisonOf(findings, name)
    if (comparison === undefined) return undefined
    const values = ratios(comparison, contender, peer, figure)
    if (values.length === 0) return undefined
    const middle = median(values)
    return { measured: range(middle, values), isMet: isMet(middle) }
  }

const atLeast = (name: string, factor: number, peer: string): Judge =>
  compared(name, peer, ratio => ratio >= factor, throughput)

const atMost = (name: string, factor: number, peer: string, figure: (sample: Sample) => number): Judge =>
  compared(name, peer, ratio => ratio <= factor, figure)

const within =
  (name: string, most: number): Judge =>
  findings => {
    const quantity = quantityOf(findings, name)
    if (quantity === undefined) return undefined
    const middle = median(quantity.values)
    return { measured: `${plain(middle)} ${quantity.unit}`, isMet: middle <= most }
  }

/** The median of a quantity is at most a multiple of the peer's. */
const quantityAtMost =
  (name: string, factor: number, peer: string): Judge =>
  findings => {
    const ours = quantityOf(findings, name)
    const theirs = quantityOf(findings, name, peer)
    if (ours === undefined || theirs === undefined) return undefined
    const [mine, other] = [median(ours.values), median(theirs.values)]
    return {
      measured: `${(mine / other).toFixed(2)} × (${plain(mine)} of ${plain(other)} ${ours.unit})`,
      isMet: mine <= factor * other
    }
  }

/** The contenders of a growth comparison are the service on the small and on the large store. */
const growth =
  (name: string, factor: number): Judge =>
  findings => {
    const [small, large] = comparisonOf(findings, name)?.series ?? []
    if (small === undefined || large === undefined) return undefined
    return compared(name, small.contender, ratio => ratio >= factor, throughput, large.contender)(findings)
  }

const fastify = "fastify + SQLite"
const webdis = "Redis + webdis"
const raw = "raw node:http"
const feed = "fastify + ws"

const processorTime = ({ cpuMicros }: Sample): number => cpuMicros
const p50 = ({ p50 }: Sample): number => p50 ?? Number.NaN
const p99 = ({ p99 }: Sample): number => p99 ?? Number.NaN

/** The peer takes at least `factor` times the processor time. */
const cheaper = (name: string, factor: number, peer: string): Judge => atMost(name, 1 / factor, peer, processorTime)

const goals: ReadonlyArray<Goal> = [
  { goal: "GET: at least 1.0 × fastify + SQLite", judge: atLeast("get", 1, fastify) },
  { goal: "GET: processor time at most 1.4 × raw node:http", judge: atMost("get", 1.4, raw, processorTime) },
  {
    goal: "GET of hot entries: processor time at most 1.25 × raw node:http",
    judge: atMost("get-hot", 1.25, raw, processorTime)
  },
  { goal: "PUT: at least 5 × fastify, a transaction a write", judge: atLeast("put", 5, fastify) },
  { goal: "PUT: processor time at most 1.6 × Redis + webdis", judge: atMost("put", 1.6, webdis, processorTime) },
  { goal: "PUT: p99 at most 1.5 × Redis + webdis", judge: atMost("put", 1.5, webdis, p99) },
  { goal: "batch of 100: processor time at most 1/2.2 of fastify", judge: cheaper("batch", 2.2, fastify) },
  { goal: "page of 100 changes near the log's end: at least 5 × fastify", judge: atLeast("changes", 5, fastify) },
  {
    goal: "page of 100 changes anywhere in the log: processor time at most 1/2.5 of fastify",
    judge: cheaper("changes-anywhere", 2.5, fastify)
  },
  {
    goal: "page of 100 changes anywhere in the log: p99 at most that of fastify",
    judge: atMost("changes-anywhere", 1, fastify, p99)
  },
  { goal: "fan-out: at least 0.9 × raw ws", judge: atLeast("fan-out", 0.9, "raw ws") },
  { goal: "fan-out under light load: p50 below that of fastify + ws", judge: atMost("light-fan-out", 1, feed, p50) },
  { goal: "fan-out under light load: p99 below that of fastify + ws", judge: atMost("light-fan-out", 1, feed, p99) },
  {
    goal: "fan-out under light load: the latest change before that of fastify + ws",
    judge: quantityAtMost("light-fan-out", 1, feed)
  },
  {
    goal: "fan-out under light load: processor time below that of fastify + ws",
    judge: atMost("light-fan-out", 1, feed, processorTime)
  },
  {
    goal: "fan-out: memory of an idle follower at most 2 × raw ws",
    judge: quantityAtMost("idle-followers", 2, "raw ws")
  },
  { goal: "GET on the large store: at least 0.9 × the small one", judge: growth("growth-get", 0.9) },
  { goal: "PUT on the large store: at least 0.8 × the small one", judge: growth("growth-put", 0.8) },
  { goal: "start to first answer on the large store: at most 1,000 ms", judge: within("start", 1000) },
  { goal: "resident memory, idle: at most 150 MiB", judge: within("memory-idle", 150) },
  { goal: "resident memory, large store under load: at most 300 MiB", judge: within("memory-loaded", 300) }
]

/** The goals that were measured. */
export const judge = (findings: Findings): ReadonlyArray<Verdict> =>
  goals.flatMap(({ goal, judge }) => {
    const verdict = judge(findings)
    return verdict === undefined ? [] : [{ goal, ...verdict }]
  })
