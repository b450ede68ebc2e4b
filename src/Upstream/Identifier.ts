/**
 * Most characters (UTF-16 code units) of an id that the agent platform gives: of instances, turns, messages, events
 * and the like. The platform's client, the records of sessions and the protocol of clients all take ids of this
 * length, so that what one of them has taken in no other refuses.
 */
export const identifierChars = 512
