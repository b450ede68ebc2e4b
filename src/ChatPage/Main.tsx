/** A page to talk with an agent, by the `useChat` of the AI SDK. */
import { createRoot } from "react-dom/client"
import { Chat } from "./Chat.tsx"
import { stored } from "./Page.ts"

const root = createRoot(document.getElementById("chat")!)

stored().then(
  messages => root.render(<Chat messages={messages!} />),
  ({ message }: Error) => root.render(<p role="alert">{message}</p>)
)
