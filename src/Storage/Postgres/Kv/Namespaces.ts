/**
 * Namespaces and tenants with the numbers of their entries: the reads, and the part of the schema that keeps the numbers
 * of tenants.
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
import type { Query, Statement } from "../Database/Statement.ts"
import { baseEntries, comeOrGone } from "./Counts.ts"
import { isDue } from "./Expiry.ts"
import { floor, lastSeq } from "./Page.ts"
import { tenantOf } from "./TenantOf.ts"

/** The end of a range; it is `''` where there is none. No index holds a name as long as the text that stands for it. */
const endOf = (high: string): string => `coalesce(nullif(${high}, ''), repeat(chr(1114111), 700))`

/** How many entries of each namespace have expired at `$1` and are still stored. */
const due = `due AS MATERIALIZED (
  SELECT e.namespace, count(*) AS entries FROM (
    SELECT namespace FROM causeway.entries WHERE ${isDue("$1")} ORDER BY expires_at LIMIT ${maxDue}
  ) e GROUP BY e.namespace
)`

/** What a map of names has for a name. A join with its rows would be planned as one with the whole table. */
const mapped = (map: string, name: string): string =>
  `coalesce(((SELECT ${map}.map FROM ${map}) ->> ${name})::bigint, 0)`

/** By namespace how many entries it has more than its base number: those that wait to be added, without those above. */
const changed = `changed AS MATERIALIZED (
  SELECT c.namespace, sum(c.entries)::bigint AS entries FROM (
    SELECT due.namespace, - due.entries AS entries FROM due
    UNION ALL SELECT w.namespace COLLATE "C", w.entries FROM causeway.waiting_counts() w
  ) c GROUP BY c.namespace
)`

const namespacesStatement: Statement = {
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
    statement: namespacesStatement,
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

const tenantsStatement: Statement = {
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
    statement: tenantsStatement,
    values: [now, low, high, range === undefined ? 0 : limit + 1],
    decode: ([row]) => {
      const all = JSON.parse(row![0] as string) as ReadonlyArray<readonly [string, number, number]>
      const tenants = all.slice(0, limit).map(([tenant, namespaces, entries]) => ({ tenant, namespaces, entries }))
      return { tenants, lastSeq: row![1] as number, epoch: row![2] as string, more: all.length > limit }
    }
  }
}

/** How the function that keeps the numbers counts entries that were deleted, in the version of a step of the schema. */
interface Variant {
  readonly declarations: string
  readonly deleted: string
}

/** A namespace is new where it has what was added to it, and gone where it has none left. */
const countFunctionOf = ({
  declarations,
  deleted
}: Variant): string => `CREATE OR REPLACE FUNCTION causeway.count_entries() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$${declarations}
  BEGIN
    IF TG_OP = 'INSERT' THEN
      WITH added AS MATERIALIZED (
        SELECT c.namespace, count(*) AS entries FROM changed c GROUP BY c.namespace
      ), counted AS (
        INSERT INTO causeway.namespaces AS n (namespace, entries)
        SELECT a.namespace, a.entries FROM added a ORDER BY a.namespace
        ON CONFLICT (namespace) DO UPDATE SET entries = n.entries + excluded.entries
        RETURNING n.namespace, n.entries
      )
      INSERT INTO causeway.tenants AS t (tenant, namespaces, entries)
      SELECT ${tenantOf("a.namespace")}, count(*) FILTER (WHERE n.entries = a.entries), sum(a.entries)
      FROM added a JOIN counted n ON n.namespace = a.namespace GROUP BY 1 ORDER BY 1
      ON CONFLICT (tenant) DO UPDATE
        SET namespaces = t.namespaces + excluded.namespaces, entries = t.entries + excluded.entries;
    ELSIF TG_OP = 'DELETE' THEN
      WITH deleted AS MATERIALIZED (
        SELECT c.namespace, count(*) AS entries FROM changed c GROUP BY c.namespace
      ), counted AS (
        UPDATE causeway.namespaces n SET entries = n.entries - d.entries FROM deleted d
        WHERE n.namespace = d.namespace
        RETURNING n.namespace, n.entries, d.entries AS deleted
      )${deleted}
    ELSE
      DELETE FROM causeway.namespaces;
      DELETE FROM causeway.tenants;
    END IF;
    RETURN NULL;
  END
  $function$`

/** By namespaces that were counted, the change of their tenants. */
const countedTenants = `
      UPDATE causeway.tenants t SET namespaces = t.namespaces - g.namespaces, entries = t.entries - g.entries
      FROM (
        SELECT ${tenantOf("n.namespace")} AS tenant, count(*) FILTER (WHERE n.entries <= 0) AS namespaces,
          sum(n.deleted) AS entries
        FROM counted n GROUP BY 1
      ) g
      WHERE t.tenant = g.tenant`

/**
 * How many namespaces and entries each tenant has, and those of no tenant. The function that keeps the numbers of
 * namespaces keeps these, too.
 */
export const statements: ReadonlyArray<string> = [
  // What is written meanwhile would not be counted.
  "LOCK TABLE causeway.entries IN SHARE ROW EXCLUSIVE MODE",
  `CREATE TABLE causeway.tenants (
    tenant text COLLATE "C" NOT NULL PRIMARY KEY, namespaces bigint NOT NULL, entries bigint NOT NULL
  ) WITH (fillfactor = 50)`,
  countFunctionOf({
    declarations: "",
    deleted: `${countedTenants};
      DELETE FROM causeway.namespaces n
      USING (SELECT DISTINCT c.namespace FROM changed c) d
      WHERE n.namespace = d.namespace AND n.entries <= 0;
      DELETE FROM causeway.tenants t
      USING (SELECT DISTINCT ${tenantOf("c.namespace")} AS tenant FROM changed c) d
      WHERE t.tenant = d.tenant AND t.namespaces <= 0;`
  }),
  `INSERT INTO causeway.tenants (tenant, namespaces, entries)
    SELECT ${tenantOf("n.namespace")}, count(*), sum(n.entries) FROM causeway.namespaces n GROUP BY 1`
]

/**
 * The function of now. It looks namespaces and tenants up by their names: of those that it joined with what was deleted
 * it read all, since the server expects none to be empty. Plans are made once for a connection, under the settings of
 * whichever function deletes first.
 */
export const lookUpStatements: ReadonlyArray<string> = [
  countFunctionOf({
    declarations: `
  DECLARE
    emptied text[];`,
    deleted: `, lessened AS (${countedTenants}
      )
      SELECT array_agg(n.namespace) FILTER (WHERE n.entries <= 0) INTO emptied FROM counted n;
      IF emptied IS NOT NULL THEN
        DELETE FROM causeway.namespaces n WHERE n.namespace = ANY (emptied);
        DELETE FROM causeway.tenants t
        WHERE t.tenant = ANY (ARRAY(SELECT ${tenantOf("e.namespace")} FROM unnest(emptied) e(namespace)))
          AND t.namespaces <= 0;
      END IF;`
  }),
  "ALTER FUNCTION causeway.expire(bigint, integer) SET enable_hashjoin = off",
  "ALTER FUNCTION causeway.expire(bigint, integer) SET enable_mergejoin = off"
]
