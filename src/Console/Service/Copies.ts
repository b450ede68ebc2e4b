/** What can be copied of an entry, a namespace or a session, as a user would paste it elsewhere. */

/** Where the service is. */
export interface Place {
  /** The origin of the service, without a slash at its end. */
  readonly origin: string
  /** The path of the API of the store, such as `/api/v1`. */
  readonly store: string
  /** The address of the page, without its fragment. */
  readonly page: string
}

export interface Copy {
  readonly name: string
  readonly text: string
}

/** A text as one word of a POSIX shell. */
export const word = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`

const segments = (...names: ReadonlyArray<string>): string => names.map(encodeURIComponent).join("/")

const curl = (address: string): string => `curl ${word(address)} -H "Authorization: Bearer $KV_API_KEY"`

const causeway = (place: Place, ...words: ReadonlyArray<string>): string => {
  const named = words.map(word)
  // A name that starts with a hyphen would be an option.
  const rest = words.some(text => text.startsWith("-")) ? ["--", ...named] : named
  return `causeway --url ${word(place.origin)} ${rest.join(" ")}`
}

const link = ({ page }: Place, ...path: ReadonlyArray<string>): string => `${page}#/${segments(...path)}`

/** Without the value, which is read when it is copied. */
export const ofEntry = (place: Place, namespace: string, key: string): ReadonlyArray<Copy> => [
  { name: "Key", text: key },
  { name: "curl", text: curl(`${place.origin}${place.store}/kv/${segments(namespace, key)}`) },
  { name: "Command line", text: causeway(place, "kv", "get", namespace, key) },
  { name: "Link", text: link(place, "store", namespace, key) }
]

export const ofNamespace = (place: Place, namespace: string): ReadonlyArray<Copy> => [
  { name: "Namespace", text: namespace },
  { name: "curl", text: curl(`${place.origin}${place.store}/kv/${segments(namespace)}`) },
  { name: "Command line", text: causeway(place, "kv", "list", namespace) },
  { name: "Link", text: link(place, "store", namespace) }
]

export const ofSession = (place: Place, id: string): ReadonlyArray<Copy> => [
  { name: "ID", text: id },
  {
    name: "curl",
    text: `curl ${word(`${place.origin}${place.store}/sessions/${segments(id)}/conversation`)} -H "Authorization: Bearer $CAUSEWAY_SESSION_TOKEN"`
  },
  { name: "Command line", text: causeway(place, "chat", "--session", id).replace(" -- ", " ") },
  { name: "Link", text: link(place, "sessions", id) }
]
