/** Work that runs at most once in a frame of the page, however often it is requested. */
export class FrameWork {
  #frame = 0

  constructor(private readonly work: () => void) {}

  request(): void {
    if (this.#frame !== 0) return
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0
      this.work()
    })
  }

  cancel(): void {
    cancelAnimationFrame(this.#frame)
    this.#frame = 0
  }
}
