"""What a turn costs in LangGraph: a graph of a model and its tools, the form of its own documentation.

Durable: its SQLite saver, mode `sync`, so that a step is written before the next begins. At once: its
asynchronous saver and one event loop, which cost as much as 128 threads.
"""

import asyncio
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import measure
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

calls = 0


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def model(state: MessagesState):
    """Asks for one call, then answers with what the tool said."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(content=last.content)]}
    global calls
    calls += 1
    call = {"name": "add", "args": {"a": 2, "b": 3}, "id": f"call-{calls}", "type": "tool_call"}
    return {"messages": [AIMessage(content="", tool_calls=[call])]}


def graph(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([add]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


conversations = 0


def conversation():
    """The configuration of a new conversation."""
    global conversations
    conversations += 1
    return {"configurable": {"thread_id": f"conversation-{conversations}"}}


def words():
    return {"messages": [HumanMessage(content=measure.QUESTION)]}


def check(answer):
    assert answer["messages"][-1].content == "5", answer


def one_conversation(agent, durability):
    config = conversation()

    def turns():
        for _ in range(measure.TURNS):
            check(agent.invoke(words(), config, durability=durability))

    return measure.cpu_per_turn(measure.TURNS, turns)


def in_memory():
    return one_conversation(graph(InMemorySaver()), "exit")


def durable():
    with tempfile.TemporaryDirectory() as folder:
        with SqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver:
            return one_conversation(graph(saver), "sync")


def at_once():
    async def turns(agent):
        config = conversation()
        for _ in range(measure.TURNS_AT_ONCE):
            check(await agent.ainvoke(words(), config, durability="sync"))

    async def together():
        with tempfile.TemporaryDirectory() as folder:
            async with AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver:
                agent = graph(saver)
                await asyncio.gather(*(turns(agent) for _ in range(measure.AT_ONCE)))

    total = measure.AT_ONCE * measure.TURNS_AT_ONCE
    return measure.cpu_per_turn(total, lambda: asyncio.run(together()))


def first_turn():
    check(graph(None).invoke(words()))


def keep(count):
    """A graph without a saver hands the messages back: all that has to be kept of a conversation."""
    agent = graph(None)
    return [agent.invoke(words()) for _ in range(count)]


measure.run(
    {
        "peer/langgraph/turn_memory": in_memory,
        "peer/langgraph/turn_durable": durable,
        "peer/langgraph/turn_at_once": at_once,
    },
    "langgraph",
    first_turn=first_turn,
    keep=keep,
)
