/**
 * Most characters (UTF-16 code units) of an id of the agent platform: of instances, turns, messages, events. The
 * platform's client, the records of sessions and the clients' protocol share this limit, so that none of them refuses
 * an id that another accepted.
 */
export const identifierChars = 512
