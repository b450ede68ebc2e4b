import { advanceExpiry, deleteEntries, expire, lowerExpiry } from "../Kv/expiry.sql.ts"
import { position } from "../Kv/position.sql.ts"

export const statements: ReadonlyArray<string> = [
  `CREATE TABLE causeway.positions (
    name text COLLATE "C" NOT NULL, id bigint NOT NULL, up_to bigint NOT NULL, PRIMARY KEY (name, id)
  )`,
  position,
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('expiry', 1, 0)",
  deleteEntries,
  expire,
  advanceExpiry,
  lowerExpiry,
  // The clock of the database is for rows that are written by hand, with any time.
  `CREATE TRIGGER entries_born_expired AFTER INSERT OR UPDATE OF expires_at ON causeway.entries FOR EACH ROW
    WHEN (NEW.expires_at IS NOT NULL
      AND NEW.expires_at <= greatest(NEW.updated_at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
    EXECUTE FUNCTION causeway.lower_expiry()`,
  `CREATE TRIGGER entries_truncated_expiry AFTER TRUNCATE ON causeway.entries
    FOR EACH STATEMENT EXECUTE FUNCTION causeway.lower_expiry()`
]
