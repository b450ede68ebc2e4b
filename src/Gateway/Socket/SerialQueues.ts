/** Work that is carried out in the order in which it came. */
export interface Task<E> {
  /** Begins the work, and calls back at its end. */
  readonly begin: (onEnd: (failure: E | undefined) => void) => void
  /** Whether it must not be carried out once work before it has failed. */
  readonly isDependent: boolean
  /** Called in place of {@link begin} where the work is not to be carried out. */
  readonly abandon: (failure: E) => void
}

/** One queue for each key, whose tasks run one after the other. A task that fails takes along the dependent ones. */
export class SerialQueues<E> {
  /** The tasks that wait, by key; present while a task of the key runs. */
  private readonly queues = new Map<string, Array<Task<E>>>()

  add(key: string, task: Task<E>): void {
    const waiting = this.queues.get(key)
    if (waiting !== undefined) {
      waiting.push(task)
      return
    }
    this.queues.set(key, [])
    this.run(key, task)
  }

  /** Abandons the tasks that wait; the one that runs goes on. */
  abandon(key: string, failure: E): void {
    for (const task of this.queues.get(key)?.splice(0) ?? []) task.abandon(failure)
  }

  private run(key: string, task: Task<E>): void {
    task.begin(failure => {
      const waiting = this.queues.get(key)
      if (failure !== undefined && waiting !== undefined) {
        const dependent = waiting.filter(({ isDependent }) => isDependent)
        waiting.splice(0, waiting.length, ...waiting.filter(({ isDependent }) => !isDependent))
        for (const task of dependent) task.abandon(failure)
      }
      const next = waiting?.shift()
      if (next === undefined) this.queues.delete(key)
      else this.run(key, next)
    })
  }
}
