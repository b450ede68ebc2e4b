/** What the platform says of an event, beside its id and timestamp. */
export interface EventBody {
  readonly type: string
  readonly [field: string]: unknown
}

/** A frame as it travels; one in bytes is sent as a binary frame. */
export type Frame = string | Buffer

/** The newest frames of an instance, numbered from 1 without holes. */
export class EventHistory {
  private readonly frames = new Map<number, Frame>()
  private firstNumber = 1
  private lastNumber = 0

  constructor(private readonly limit: number) {}

  /** The number of the oldest frame kept; one past `last` where none is. */
  get first(): number {
    return this.firstNumber
  }

  get last(): number {
    return this.lastNumber
  }

  get(number: number): Frame | undefined {
    return this.frames.get(number)
  }

  /** Appends an event under the id that belongs to its place. */
  append(event: EventBody, timestamp: number): void {
    this.appendFrame(JSON.stringify({ id: `e${this.lastNumber + 1}`, timestamp, ...event }))
  }

  /** Appends what is no sound event; it takes up a number but has no id of its own. */
  appendFrame(frame: Frame): void {
    this.frames.set(++this.lastNumber, frame)
    if (this.frames.size > this.limit) this.frames.delete(this.firstNumber++)
  }

  /**
   * The number of the first frame to replay after an event. Without an id, with one that was never given, or with
   * one whose successors are gone, it is the oldest kept.
   */
  numberAfter(id: string | null): number {
    const number = /^e\d{1,15}$/.test(id ?? "") ? Number(id!.slice(1)) + 1 : 0
    return number > this.lastNumber + 1 ? this.firstNumber : Math.max(this.firstNumber, number)
  }
}
