"""What LangGraph does in the failure probes: the graph of its documentation, its SQLite saver in mode `sync`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import probe
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


def graph(model, tools, saver=None):
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def words():
    return {"messages": [HumanMessage(content=probe.QUESTION)]}


def asks(*calls):
    calls = [{**call, "id": f"call-{index}", "type": "tool_call"} for index, call in enumerate(calls)]
    return {"messages": [AIMessage(content="", tool_calls=calls)]}


def batch(folder, ledger, is_resumed):
    @tool
    def effect(number: int) -> str:
        """Does something that cannot be undone."""
        return ledger.effect(number)

    def model(state):
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage(content="all done")]}
        return asks(*({"name": "effect", "args": {"number": number}} for number in range(probe.CALLS)))

    with SqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver:
        config = {"configurable": {"thread_id": "one"}}
        # No input means: go on where it was.
        graph(model, [effect], saver).invoke(None if is_resumed else words(), config, durability="sync")


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def endless(stubborn):
    def model(state):
        stubborn.ask()
        return asks({"name": "add", "args": {"a": "two"}})

    graph(model, [add]).invoke(words())


def secret(text, seen):
    @tool
    def pay(amount: int) -> str:
        """Pays."""
        raise RuntimeError(text)

    def model(state):
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            seen.append(str(last.content))
            return {"messages": [AIMessage(content="so be it")]}
        return asks({"name": "pay", "args": {"amount": 5}})

    graph(model, [pay]).invoke(words())


probe.main(batch, endless, secret)
