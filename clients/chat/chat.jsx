// A chat page with useChat of the AI SDK, in front of `budao serve`. `#server=…&token=…` in the address names the server.
//
// An answer survives a cut line (`resumingFetch`), a reload (`resume`) and a killed server. The page keeps the messages that
// it has seen; the server sends the last answer again from its start, also if it ended while the page was closed.

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { resumingFetch } from "budao/front-end";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const address = new URLSearchParams(location.hash.slice(1));
const server = address.get("server") ?? "http://127.0.0.1:7333";
const headers = { authorization: `Bearer ${address.get("token") ?? ""}` };

/** What the browser keeps of the chat: its id and the messages seen so far. */
const stored = JSON.parse(localStorage.getItem("chat") ?? "null") ?? { id: crypto.randomUUID(), messages: [] };
const store = (messages) => localStorage.setItem("chat", JSON.stringify({ id: stored.id, messages }));

/** A tool that runs in the page. It changes nothing, so it needs no approval. */
const tools = [{ name: "time_zone", description: "The time zone of the user.", parameters: { type: "object" }, metadata: { readOnly: true } }];
const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

const transport = new DefaultChatTransport({
  api: `${server}/api/chat`,
  headers,
  body: { tools },
  fetch: resumingFetch(),
  // With `startIndex`, the last answer comes also if it is over.
  prepareReconnectToStreamRequest: ({ api, id }) => ({ api: `${api}/${encodeURIComponent(id)}/stream?startIndex=0` }),
});

function Tool({ part, answer }) {
  const asked = part.state === "approval-requested";
  return (
    <div className="tool" data-state={part.state}>
      <code>{part.toolName}</code> <span className="state">{part.state}</span>
      <pre>{JSON.stringify(part.input, null, 1)}</pre>
      {asked && <button onClick={() => answer({ id: part.approval.id, approved: true })}>Approve</button>}
      {asked && <button onClick={() => answer({ id: part.approval.id, approved: false })}>Deny</button>}
      {part.state === "output-error" && <p className="error">{part.errorText}</p>}
    </div>
  );
}

function Part({ part, answer }) {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (part.type === "reasoning") return <p className="reasoning">{part.text}</p>;
  if (part.type === "dynamic-tool") return <Tool part={part} answer={answer} />;
  return null;
}

function Chat() {
  const [text, setText] = useState("");
  const { messages, status, error, sendMessage, addToolApprovalResponse, addToolOutput, regenerate } = useChat({
    id: stored.id,
    messages: stored.messages,
    resume: stored.messages.length > 0,
    transport,
    sendAutomaticallyWhen: (chat) => lastAssistantMessageIsCompleteWithApprovalResponses(chat) || lastAssistantMessageIsCompleteWithToolCalls(chat),
    onToolCall: ({ toolCall: { toolName: tool, toolCallId } }) => {
      if (tool === "time_zone") addToolOutput({ tool, toolCallId, output: timeZone() });
    },
  });
  useEffect(() => store(messages), [messages]);
  const busy = status === "submitted" || status === "streaming";
  const send = (event) => {
    event.preventDefault();
    if (text.trim() === "" || busy) return;
    sendMessage({ text });
    setText("");
  };
  const cancel = () => fetch(`${server}/api/chat/${encodeURIComponent(stored.id)}/cancel`, { method: "POST", headers });
  return (
    <main data-status={status}>
      <ol>
        {messages.map((message) => (
          <li key={message.id} className={message.role}>
            {message.parts.map((part, index) => <Part key={index} part={part} answer={addToolApprovalResponse} />)}
          </li>
        ))}
      </ol>
      {error !== undefined && <p role="alert" className="error">{error.message} <button onClick={() => regenerate()}>Try again</button></p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} autoFocus />
        {busy ? <button type="button" onClick={cancel}>Stop</button> : <button>Send</button>}
        <span className="state">{status}</span>
      </form>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
