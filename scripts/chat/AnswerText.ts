/** Answers to commands as text. */
import type { Answer, Session } from "../../src/Gateway/Protocol.ts"
import { clean, count } from "./Text.ts"

const time = (millis: number): string => new Date(millis).toISOString()

const sessionLine = ({ id, state, title, headSeq }: Session): string =>
  `${id}  ${state}  ${title === "" ? "(no title)" : clean(title)}  ${count(headSeq)} events`

/** The content of a text file, or the size of any other file. */
const fileText = (content: string, encoding: "utf-8" | "base64"): string =>
  encoding === "base64"
    ? `(${count(Buffer.byteLength(content, "base64"))} bytes that are no text)`
    : clean(content).replace(/\n$/, "")

/** An answer as text, without a final line break. */
export const textOf = (answer: Answer): string => {
  switch (answer.type) {
    case "session_list":
      return answer.sessions.length === 0
        ? "There are no sessions."
        : [...answer.sessions.map(sessionLine), ...(answer.cursor === undefined ? [] : ["There are older ones."])].join(
            "\n"
          )
    case "session":
    case "session_created":
      return sessionLine(answer.session)
    case "file_list":
      return answer.entries.length === 0
        ? "There are no files."
        : answer.entries
            .map(({ path, size, type }) =>
              type === "directory"
                ? `${clean(path)}/`
                : `${clean(path)}${size === undefined ? "" : `  ${count(size)} bytes`}`
            )
            .join("\n")
    case "file_content":
      return fileText(answer.content, answer.encoding)
    case "file_history_list":
      return answer.iterations
        .map(({ iteration, timestamp, size, hash }) =>
          [String(iteration), time(timestamp), `${count(size)} bytes`, clean(hash)].join("  ")
        )
        .join("\n")
    case "session_deleted":
      return "The session is deleted."
    case "subscribed":
      return `Subscribed at ${count(answer.headSeq)}.`
    case "unsubscribed":
      return "Unsubscribed."
    case "accepted":
      return "Accepted."
    case "pong":
      return time(answer.timestamp)
    case "error":
      return `${clean(answer.error.message)} (${answer.error.code}, trace ${answer.error.traceId})`
  }
}
