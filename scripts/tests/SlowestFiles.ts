import { relative } from "node:path"
import type { TestModule } from "vitest/node"
import type { Reporter } from "vitest/reporters"

const seconds = (milliseconds: number): string => `${(milliseconds / 1000).toFixed(1)} s`

/** Prints the ten slowest files with their times, and how long the whole run took. */
export class SlowestFiles implements Reporter {
  #start = 0
  #root = ""

  onInit({ config }: { readonly config: { readonly root: string } }): void {
    this.#root = config.root
  }

  onTestRunStart(): void {
    this.#start = performance.now()
  }

  onTestRunEnd(modules: ReadonlyArray<TestModule>): void {
    const files = modules
      .map(module => {
        const { collectDuration, duration } = module.diagnostic()
        return { name: relative(this.#root, module.moduleId), time: collectDuration + duration }
      })
      .sort((a, b) => b.time - a.time)
    console.log(`\nThe slowest of ${files.length} files, which took ${seconds(performance.now() - this.#start)}:`)
    for (const { name, time } of files.slice(0, 10)) console.log(`${seconds(time).padStart(9)}  ${name}`)
  }
}
