"""A turn in LangGraph with its PostgreSQL saver, mode `sync`: a step is written before the next begins."""

import pathlib
import sys

# This file has the name of what it imports.
sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

import durable
import measure
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
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


# The tables are made on a connection of their own: some of the statements refuse a pipeline.
with PostgresSaver.from_conn_string(durable.address()) as saver:
    saver.setup()

with PostgresSaver.from_conn_string(durable.address(), pipeline=True) as saver:
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([add]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    agent = builder.compile(checkpointer=saver)

    def conversation(number, turns):
        config = {"configurable": {"thread_id": f"conversation-{number}"}}
        for _ in range(turns):
            words = {"messages": [HumanMessage(content=measure.QUESTION)]}
            answer = agent.invoke(words, config, durability="sync")
            assert answer["messages"][-1].content == "5", answer

    durable.run(conversation)
