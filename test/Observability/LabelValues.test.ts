import { assert, describe, it } from "@effect/vitest"
import { Effect, FastCheck as fc, Metric } from "effect"
import * as MetricTags from "../../src/MetricTags.ts"
import * as LabelValues from "../../src/Observability/LabelValues.ts"
import * as Samples from "../../src/Observability/Samples.ts"

const series = (name: string) =>
  Effect.map(Metric.snapshot, pairs =>
    Object.fromEntries(
      Samples.fromSnapshot(pairs, MetricTags.none).flatMap(sample =>
        sample.name === name ? [[sample.labels.type, sample.value]] : []
      )
    )
  )

describe("label values", () => {
  it("are bounded, and keep their values", () => {
    fc.assert(
      fc.property(fc.array(fc.string()), fc.integer({ min: 0, max: 5 }), (values, most) => {
        const label = new LabelValues.LabelValues(most)
        const shown = values.map(value => label.of(value))
        assert.isAtMost(new Set(shown.filter(value => value !== LabelValues.other)).size, most)
        for (const [index, value] of values.entries()) {
          assert.include([value, LabelValues.other], shown[index])
          if (shown[index] !== LabelValues.other) assert.strictEqual(label.of(value), value)
        }
      })
    )
    assert.strictEqual(new LabelValues.LabelValues().of("x".repeat(65)), LabelValues.other)
  })

  it.effect("of a counter share one series above the bound; nothing is lost", () =>
    Effect.gen(function* () {
      const counter = LabelValues.counter("test_labelled_total", { label: "type", description: "Tests.", most: 2 })
      counter.register([], MetricTags.none)
      assert.deepStrictEqual(yield* series("test_labelled_total"), { other: 0 })
      for (let index = 0; index < 100; index++) counter.increment(`type${index}`, MetricTags.none)
      counter.increment("type1", MetricTags.none)
      assert.deepStrictEqual(yield* series("test_labelled_total"), { type0: 1, type1: 2, other: 98 })
    })
  )
})
