/**
 * Titles of sessions that were not given one.
 */

/** Characters of a title that is made of a message. */
const titleLength = 60

/** The first words of a message, as a title for its session. */
export const titleOf = (message: string): string => {
  const words = message.toWellFormed().trim().split(/\s+/u).slice(0, 12)
  const all = words.join(" ")
  if (all.length <= titleLength) return all
  const whole = all.slice(0, titleLength + 1).replace(/\s\S*$/u, "")
  return whole.length <= titleLength ? `${whole}…` : `${whole.slice(0, titleLength).replace(/[\ud800-\udbff]$/, "")}…`
}

/** Characters of a first message that a model is shown. */
const shown = 2000

/** What a model is asked for a title. */
export const promptFor = (message: string): string =>
  `Write a title of at most six words for a conversation that begins with the message below. Answer with the title alone.\n\n${message.slice(0, shown).toWellFormed()}`

/** A model's answer as a title; nothing where it is none. */
export const fromAnswer = (answer: string): string | undefined => {
  const line = answer.trim().split(/\r?\n/u)[0] ?? ""
  const bare = line.replace(/^["'“‘#*\s]+|["'”’*\s]+$/gu, "")
  return bare === "" ? undefined : titleOf(bare)
}
