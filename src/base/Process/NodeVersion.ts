/** The versions of Node that can run the service and its library. */

const oldest = 22

/** Why this Node cannot run them: the native module of SQLite would end the process. `undefined` if it can. */
export const problem = (node: string = process.versions.node): string | undefined =>
  Number.parseInt(node, 10) < oldest ? `It needs Node ${oldest} or later, and this is Node ${node}.` : undefined
