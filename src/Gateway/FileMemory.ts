/**
 * The memory of calls for files, which tenants share. A call counts the maximum size of its answer, and an answer its size
 * until it is sent. When memory is needed, answers to stalled clients of the largest tenant are dropped.
 */
import { MiB } from "../base/Bytes.ts"
import { FairPool } from "./FairPool.ts"
import type { Request } from "./Protocol/Request.ts"

/** Requests whose answers may be large. */
export const fileRequests: ReadonlySet<Request["type"]> = new Set([
  "list_files",
  "read_file",
  "file_history",
  "file_at_iteration"
])

/** Maximum bytes of the answer to a file call, which is the limit of the platform's client. */
const fileBytes = { list: 8 * MiB, content: 32 * MiB } as const

/** Maximum bytes of the answer to a file request. */
export const largestAnswer = (type: Request["type"]): number =>
  type === "read_file" || type === "file_at_iteration" ? fileBytes.content : fileBytes.list

/** The memory, in bytes. Calls in progress cannot be reclaimed. */
export const makeFileMemory = (capacity: number): FairPool =>
  new FairPool({ name: "memory for files", capacity, maxOfOne: Math.max(capacity * 0.75, fileBytes.content) })
