"""LangGraph in the storms: the graph of its documentation on LangChain's client, with its retry policy on the model's node."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
# This file has the name of what it imports.
sys.path.remove(str(pathlib.Path(__file__).resolve().parent))

import storm
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy


def prepare(urls, has_call, effects):
    tools = [StructuredTool.from_function(effects.effect)] if has_call else []
    models = [
        ChatOpenAI(model=storm.MODEL, base_url=url, api_key=storm.KEY, streaming=True) for url in urls
    ]
    models = [model.bind_tools(tools) if tools else model for model in models]
    model = models[0].with_fallbacks(models[1:]) if len(models) > 1 else models[0]

    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask, retry_policy=RetryPolicy())
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    graph = builder.compile()

    async def turn(number):
        state = await graph.ainvoke({"messages": [("user", storm.question(number))]})
        return state["messages"][-1].text

    return turn


storm.main(prepare, has_second=True)
