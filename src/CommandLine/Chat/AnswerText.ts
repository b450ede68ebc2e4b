/** Answers to commands as text without a final line break. */
import type {
  FileContent,
  FileEntry,
  FileIteration,
  Session,
  SessionPage,
  SessionsError
} from "../../EffectClient/Client.ts"
import { clean, cleanName, count } from "../Terminal/Text.ts"

const time = (millis: number): string => new Date(millis).toISOString()

/** One session, in one line. */
export const ofSession = ({ id, state, title, headSeq }: Session): string =>
  `${id}  ${state}  ${title === "" ? "(no title)" : cleanName(title)}  ${count(headSeq)} events`

/** A page of sessions. */
export const ofSessions = ({ cursor, sessions }: SessionPage): string =>
  sessions.length === 0
    ? "There are no sessions."
    : [...sessions.map(ofSession), ...(cursor === undefined ? [] : ["Older sessions exist."])].join("\n")

/** A list of files. */
export const ofFiles = (entries: ReadonlyArray<FileEntry>): string =>
  entries.length === 0
    ? "There are no files."
    : entries
        .map(({ path, size, type }) =>
          type === "directory"
            ? `${cleanName(path)}/`
            : `${cleanName(path)}${size === undefined ? "" : `  ${count(size)} bytes`}`
        )
        .join("\n")

/** The content of a text file, or the size of any other file. */
export const ofFile = ({ content, encoding }: FileContent): string =>
  encoding === "base64"
    ? `(${count(Buffer.byteLength(content, "base64"))} bytes, not text)`
    : clean(content).replace(/\n$/, "")

/** The versions of a file. */
export const ofIterations = (iterations: ReadonlyArray<FileIteration>): string =>
  iterations
    .map(({ iteration, timestamp, size, hash }) =>
      [String(iteration), time(timestamp), `${count(size)} bytes`, cleanName(hash)].join("  ")
    )
    .join("\n")

/** The failure of a call. */
export const ofError = (error: SessionsError): string =>
  error._tag === "RequestRefused"
    ? `${clean(error.message)} (${error.code}, trace ${error.traceId})`
    : clean(error.message)
