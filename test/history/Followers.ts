/** Followers of the change log that have a connection, lose it, and continue with another node. */
import { request as send } from "node:http"
import { Effect, type Random } from "effect"
import { WebSocket } from "ws"
import { type Node, pauseWithoutAnswer, type Session } from "./Client.ts"
import type * as H from "./History.ts"

export interface Options {
  readonly name: string
  readonly by: H.Open["by"]
  readonly tenant?: string
  readonly maxMessages: number
}

type Message =
  | {
      readonly type: "changes"
      readonly changes: ReadonlyArray<H.Change>
      readonly lastSeq: number
      readonly epoch?: string
    }
  | { readonly type: "reset" }

type Position = { readonly seq: number; readonly epoch: string | undefined }

/** Receives messages until the connection ends or one is answered with `false`; interruption ends it. */
type Connect = (
  url: URL,
  headers: Readonly<Record<string, string>>,
  receive: (message: Message) => boolean
) => Effect.Effect<void>

const socket: Connect = (url, headers, receive) =>
  Effect.async<void>(resume => {
    url.protocol = "ws:"
    url.pathname += "/ws"
    let isOver = false
    const connection = new WebSocket(url, { headers })
    connection.on("error", () => {})
    connection.on("close", () => resume(Effect.void))
    connection.on("message", data => {
      if (isOver) return
      const { type, ...frame } = JSON.parse(String(data))
      isOver = !receive(type === "reset" ? { type } : { type: "changes", changes: [], ...frame })
      if (isOver) connection.terminate()
    })
    return Effect.sync(() => {
      isOver = true
      connection.terminate()
    })
  })

/** The message of an event, from the text between two blank lines; a comment is none. */
const messageOf = (block: string): Message | undefined => {
  const fields = new Map(
    block.split("\n").map(line => {
      const [, name = "", value = ""] = /^([^:]*): ?(.*)$/.exec(line) ?? []
      return [name, value] as const
    })
  )
  const id = fields.get("id")
  if (fields.get("event") === "reset") return { type: "reset" }
  if (id === undefined) return undefined
  const [seq, epoch] = id.split("@")
  const data = fields.get("data")
  const changes = data === undefined ? [] : [JSON.parse(data)]
  return { type: "changes", changes, lastSeq: Number(seq), ...(epoch === undefined ? {} : { epoch }) }
}

const events: Connect = (url, headers, receive) =>
  Effect.async<void>(resume => {
    url.pathname += "/stream"
    let isOver = false
    const request = send(url, { agent: false, headers })
    const take = (message: Message | undefined) => {
      if (isOver || message === undefined) return
      isOver = !receive(message)
      if (isOver) request.destroy()
    }
    request.on("error", () => resume(Effect.void))
    request.on("close", () => resume(Effect.void))
    request.on("response", response => {
      let rest = ""
      response.setEncoding("utf8")
      response.on("error", () => {})
      if (response.statusCode === 410) take({ type: "reset" })
      response.on("data", (part: string) => {
        if (response.statusCode !== 200) return
        const blocks = (rest + part).split("\n\n")
        rest = blocks.pop() ?? ""
        for (const block of blocks) take(messageOf(block))
      })
    })
    request.end()
    return Effect.sync(() => {
      isOver = true
      request.destroy()
    })
  })

export class Follower {
  private position: Position = { seq: 0, epoch: undefined }
  private left = 0
  private stays = false

  constructor(
    private readonly session: Session,
    readonly options: Options
  ) {}

  /** The last `seq` that it knows to have been scanned. */
  get seq(): number {
    return this.position.seq
  }

  /** Does not leave by itself any more. */
  stay(): void {
    this.stays = true
  }

  private reset(): false {
    this.session.recorder.reset(this.options.name)
    this.position = { seq: 0, epoch: undefined }
    return false
  }

  /**
   * Returns whether to continue with the connection.
   *
   * @param isNotified whether the service reports a replaced log on this connection
   */
  private receive(message: Message, isNotified: boolean): boolean {
    if (message.type === "reset") return this.reset()
    const { changes, epoch, lastSeq } = message
    const isOther = this.position.epoch !== undefined && epoch !== this.position.epoch
    // A heartbeat has no news, unless it belongs to another log.
    const isNew = changes.length > 0 || lastSeq !== this.position.seq || isOther
    if (isNew && (isNotified || !isOther)) {
      const follower = this.options.name
      this.session.recorder.seen({ follower, changes, lastSeq, ...(epoch === undefined ? {} : { epoch }) })
    }
    if (isOther) return this.reset()
    this.position = { seq: lastSeq, epoch }
    return this.stays || --this.left > 0
  }

  /** Follows the log until interrupted, over one connection after the other. */
  follow(nodes: ReadonlyArray<Node>, random: Random.Random): Effect.Effect<never> {
    const { key, recorder } = this.session
    const { by, name, maxMessages, tenant } = this.options
    const one = Effect.gen(this, function* () {
      const node = nodes[yield* random.nextIntBetween(0, nodes.length)]!
      this.left = yield* random.nextIntBetween(1, maxMessages + 1)
      const resumesById = by === "events" && (yield* random.nextBoolean)
      const base = node.url()
      if (base === undefined) return
      const { epoch, seq } = this.position
      const url = new URL("/api/v1/changes", base)
      if (tenant !== undefined) url.searchParams.set("tenant", tenant)
      const headers: Record<string, string> = { authorization: `Bearer ${key}` }
      if (resumesById && epoch !== undefined) headers["last-event-id"] = `${seq}@${epoch}`
      else {
        url.searchParams.set("after", String(seq))
        if (epoch !== undefined) url.searchParams.set("epoch", epoch)
      }
      const part = tenant === undefined ? {} : { tenant }
      const named = epoch === undefined ? {} : { epoch }
      recorder.open({ follower: name, node: node.name, by, after: seq, ...named, ...part })
      // A WebSocket without an epoch in its request learns of another log only from its frames.
      const isNotified = by === "events" || epoch !== undefined
      const receive = (message: Message) => this.receive(message, isNotified)
      yield* by === "socket" ? socket(url, headers, receive) : events(url, headers, receive)
    })
    return Effect.forever(Effect.zipRight(one, Effect.sleep(pauseWithoutAnswer)))
  }
}
