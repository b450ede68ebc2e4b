/** A unit of work in a queue. */
export interface Task<E> {
  /** Starts the work. Calls back at its end. */
  readonly begin: (onEnd: (failure: E | undefined) => void) => void
  /** Whether it is abandoned when a task before it fails. */
  readonly isDependent: boolean
  /** Called instead of {@link begin} if the task is abandoned. */
  readonly abandon: (failure: E) => void
}

/** A queue for each key. The tasks of a queue run one at a time, in order. */
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

  /** Abandons the waiting tasks. The running one continues. */
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
