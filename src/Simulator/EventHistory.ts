/** An event without its id and timestamp. */
export interface EventBody {
  readonly type: string
  readonly [field: string]: unknown
}

/** A text frame, or a binary one. */
export type Frame = string | Buffer

/** The newest frames of an instance, numbered from 1 without gaps. */
export class EventHistory {
  private readonly frames = new Map<number, Frame>()
  private firstNumber = 1
  private lastNumber = 0

  constructor(private readonly limit: number) {}

  /** The number of the oldest frame kept; one past `last` if there is none. */
  get first(): number {
    return this.firstNumber
  }

  get last(): number {
    return this.lastNumber
  }

  get(number: number): Frame | undefined {
    return this.frames.get(number)
  }

  /** Appends an event, whose id has its number. */
  append(event: EventBody, timestamp: number): void {
    this.appendFrame(JSON.stringify({ id: `e${this.lastNumber + 1}`, timestamp, ...event }))
  }

  /** Appends a frame that is not a valid event. It has a number, but no id. */
  appendFrame(frame: Frame): void {
    this.frames.set(++this.lastNumber, frame)
    if (this.frames.size > this.limit) this.frames.delete(this.firstNumber++)
  }

  /**
   * The number of the first frame to replay after an event: the oldest kept if there is no id, if it is unknown, or if
   * the next frames were removed.
   */
  numberAfter(id: string | null): number {
    const number = /^e\d{1,15}$/.test(id ?? "") ? Number(id!.slice(1)) + 1 : 0
    return number > this.lastNumber + 1 ? this.firstNumber : Math.max(this.firstNumber, number)
  }
}
