/**
 * Reads of namespaces and tenants with the numbers of their entries: base numbers, and pending changes of them.
 */
import {
  maxDue,
  type NamespacePage,
  type NamespaceQuery,
  type TenantPage,
  type TenantQuery
} from "../../../Kv/Store.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import * as Encoding from "../Database/Encoding.ts"
import type { Query } from "../Database/Statement.ts"
import { floor, isDue, lastSeq } from "./SqlParts.ts"

/** SQL for `Kv/Entry.tenantOf` of a column. */
const tenantOf = (namespace: string): string =>
  `CASE WHEN starts_with(${namespace}, 'tenant:') THEN split_part(substr(${namespace}, 8), '/', 1) ELSE '' END`

/** SQL for the entries of a namespace without pending changes. */
const baseEntries = (namespace: string): string =>
  `coalesce((SELECT b.entries FROM causeway.base_namespaces b WHERE b.namespace = ${namespace}), 0)`

/**
 * SQL for the change in the number of namespaces of a tenant when one of them that has `before` entries gets `more`.
 */
const comeOrGone = (before: string, more: string): string =>
  `CASE WHEN ${before} + ${more} > 0 THEN 1 ELSE 0 END - CASE WHEN ${before} > 0 THEN 1 ELSE 0 END`

/** SQL for the end of a range. `''` means no end; a text longer than any name in an index replaces it. */
const endOf = (high: string): string => `coalesce(nullif(${high}, ''), repeat(chr(1114111), 700))`

/** The number of entries of each namespace that have expired at `$1` and are still stored. */
const due = `due AS MATERIALIZED (
  SELECT e.namespace, count(*) AS entries FROM (
    SELECT namespace FROM causeway.entries WHERE ${isDue("$1")} ORDER BY expires_at LIMIT ${maxDue}
  ) e GROUP BY e.namespace
)`

/** SQL for the value of a name in a map. The planner would plan a join with its rows as a join with the whole table. */
const mapped = (map: string, name: string): string =>
  `coalesce(((SELECT ${map}.map FROM ${map}) ->> ${name})::bigint, 0)`

/** By namespace, the difference to its base number: the pending changes, minus the entries above. */
const changed = `changed AS MATERIALIZED (
  SELECT c.namespace, sum(c.entries)::bigint AS entries FROM (
    SELECT due.namespace, - due.entries AS entries FROM due
    UNION ALL SELECT w.namespace COLLATE "C", w.entries FROM causeway.waiting_counts() w
  ) c GROUP BY c.namespace
)`

const namespacesStatement = {
  name: "namespaces",
  text: `WITH ${due}, ${changed}, net AS MATERIALIZED (
      SELECT jsonb_object_agg(changed.namespace, changed.entries) AS map FROM changed
    ), added AS MATERIALIZED (
      SELECT changed.namespace, changed.entries AS count FROM changed
      WHERE changed.entries > 0 AND ${baseEntries("changed.namespace")} = 0
    ) SELECT (
      SELECT coalesce(json_agg(json_build_array(page.namespace, page.count) ORDER BY page.namespace), '[]')
      FROM (
        SELECT part.namespace, part.count FROM unnest($2::text[], $3::text[]) range(low, high), LATERAL (
          (
            SELECT n.namespace, n.entries + ${mapped("net", "n.namespace")} AS count
            FROM causeway.base_namespaces n
            WHERE n.namespace >= range.low AND n.namespace < ${endOf("range.high")} AND n.namespace > $4
              AND n.entries + ${mapped("net", "n.namespace")} > 0
            ORDER BY n.namespace LIMIT $5
          )
          UNION ALL
          SELECT a.namespace, a.count FROM added a
          WHERE a.namespace >= range.low AND a.namespace < ${endOf("range.high")} AND a.namespace > $4
        ) part ORDER BY part.namespace LIMIT $5
      ) page
    ), ${lastSeq}, causeway.epoch()`
}

/** A page of namespaces. */
export const namespaces = (query: NamespaceQuery, now: number): Query<NamespacePage> => {
  const { after, limit } = query
  const ranges = KeyOrder.rangesOfNamespaces(query)
  return {
    ...namespacesStatement,
    values: [
      now,
      Encoding.texts(ranges.map(({ low }) => low)),
      Encoding.texts(ranges.map(({ high = "" }) => high)),
      floor(after),
      limit + 1
    ],
    decode: ([row]) => {
      const all = JSON.parse(row![0] as string) as ReadonlyArray<readonly [string, number]>
      const namespaces = all.slice(0, limit).map(([namespace, count]) => ({ namespace, count }))
      return { namespaces, lastSeq: row![1] as number, epoch: row![2] as string, more: all.length > limit }
    }
  }
}

const tenantsStatement = {
  name: "tenants",
  text: `WITH ${due}, ${changed}, moved AS MATERIALIZED (
      SELECT ${tenantOf("c.namespace")} AS tenant, sum(${comeOrGone("c.before", "c.entries")}) AS namespaces,
        sum(c.entries) AS entries
      FROM (
        SELECT changed.namespace, changed.entries, ${baseEntries("changed.namespace")} AS before FROM changed
      ) c GROUP BY 1
    ), entries AS MATERIALIZED (SELECT jsonb_object_agg(moved.tenant, moved.entries) AS map FROM moved),
    namespaces AS MATERIALIZED (SELECT jsonb_object_agg(moved.tenant, moved.namespaces) AS map FROM moved),
    added AS MATERIALIZED (
      SELECT moved.tenant, moved.namespaces, moved.entries FROM moved
      WHERE moved.namespaces > 0
        AND NOT coalesce((SELECT true FROM causeway.base_tenants b WHERE b.tenant = moved.tenant), false)
    ) SELECT (
      SELECT coalesce(json_agg(json_build_array(page.tenant, page.namespaces, page.entries) ORDER BY page.tenant), '[]')
      FROM (
        SELECT part.tenant, part.namespaces, part.entries FROM (
          (
            SELECT t.tenant, t.namespaces + ${mapped("namespaces", "t.tenant")} AS namespaces,
              t.entries + ${mapped("entries", "t.tenant")} AS entries
            FROM causeway.base_tenants t
            WHERE t.tenant >= $2 AND t.tenant < ${endOf("$3")}
              AND t.namespaces + ${mapped("namespaces", "t.tenant")} > 0
            ORDER BY t.tenant LIMIT $4
          )
          UNION ALL
          SELECT a.tenant, a.namespaces, a.entries FROM added a WHERE a.tenant >= $2 AND a.tenant < ${endOf("$3")}
        ) part ORDER BY part.tenant LIMIT $4
      ) page
    ), ${lastSeq}, causeway.epoch()`
}

/** A page of tenants. */
export const tenants = (query: TenantQuery, now: number): Query<TenantPage> => {
  const { limit } = query
  const range = KeyOrder.rangeOfTenants(query)
  const { high = "", low } = range ?? { low: "" }
  return {
    ...tenantsStatement,
    values: [now, low, high, range === undefined ? 0 : limit + 1],
    decode: ([row]) => {
      const all = JSON.parse(row![0] as string) as ReadonlyArray<readonly [string, number, number]>
      const tenants = all.slice(0, limit).map(([tenant, namespaces, entries]) => ({ tenant, namespaces, entries }))
      return { tenants, lastSeq: row![1] as number, epoch: row![2] as string, more: all.length > limit }
    }
  }
}
