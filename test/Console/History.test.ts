/** How the console puts the samples of a node together, and where its plots have gaps. */
import { assert, describe, it } from "vitest"
import { added, type History, lastOf, plotted } from "../../src/Console/Overview/History.ts"
import { byFigure, type Series } from "../../src/Operations/Activity/Model.ts"

const series = (...at: ReadonlyArray<number>): Series => ({ at, ...byFigure(() => at) })

const known: History = { ...series(5, 10), since: 1 }

describe("the samples of a node", () => {
  it("are added once, however answers overlap", () => {
    assert.deepStrictEqual(added(known, 1, series(5, 10, 15)).at, [5, 10, 15])
    assert.deepStrictEqual(added(known, 1, series()).at, [5, 10])
    const { at, lag, since } = added(added(undefined, 1, series(5)), 7, series(5, 20))
    assert.deepStrictEqual([at, lag, since], [[5, 20], [5, 20], 7])
  })

  it("are those of the last hour, and start again if the clock was set back", () => {
    assert.deepStrictEqual(added(known, 1, series(3_600_007)).at, [10, 3_600_007])
    assert.deepStrictEqual(added(known, 1, series(3, 4)).at, [3, 4])
  })

  it("have a point without values at both ends, and where samples are missing", () => {
    const history = { ...series(100, 110, 150, 160), since: 1 }
    const { times, values } = plotted(history, 50, 200, 25)
    assert.deepStrictEqual(times, [50, 100, 110, 111, 150, 160, 200])
    assert.deepStrictEqual(values.lag, [null, 100, 110, null, 150, 160, null])
    assert.deepStrictEqual(plotted(undefined, 1, 2, 1).times, [1, 2])
    assert.deepStrictEqual(plotted(history, 105, 155, 25).times, [105, 110, 111, 150, 155])
  })

  it("have the last value of a figure", () => {
    assert.strictEqual(lastOf(known, "lag"), 10)
    assert.isNaN(lastOf(undefined, "lag"))
  })
})
