/** The frames in which a conversation is sent. */
import type { ReadConversation } from "../Conversations.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import { conversationBytes } from "../Protocol/Limits.ts"

const encoder = new TextEncoder()

const scratch = new Uint8Array(conversationBytes)

const isHighSurrogate = (code: number): boolean => (code & 0xfc00) === 0xd800

/** Where a slice of a text from `start` ends that has at most as many bytes in UTF-8 as a frame may have. */
const endOfSlice = (text: string, start: number): number => {
  const slice = text.slice(start, start + conversationBytes)
  const whole = isHighSurrogate(slice.charCodeAt(slice.length - 1)) ? slice.slice(0, -1) : slice
  // It stops before a character that has no room.
  return start + encoder.encodeInto(whole, scratch).read
}

/** The frames of a conversation in order, each made when it is taken. */
export function* conversationFrames(
  sessionId: string,
  { epoch, seq, text }: ReadConversation
): Generator<AnswerOf<"conversation">> {
  for (let start = 0, index = 0; start < text.length; index++) {
    const end = endOfSlice(text, start)
    const slice = text.slice(start, end)
    yield { type: "conversation", sessionId, epoch, seq, index, last: end === text.length, text: slice }
    start = end
  }
}
