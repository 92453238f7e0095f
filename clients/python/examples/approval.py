"""A tool that a person must confirm. Here the person is a function that allows small payments."""

import budao

paid: list[int] = []


@budao.tool(confirm=True)
def pay(amount: int) -> str:
    """Pays an amount."""
    paid.append(amount)
    return f"paid {amount}"


def approve(question: budao.Question) -> budao.Decision:
    amount = question.arguments["amount"]
    print("asked:", question.tool, amount)
    return budao.Decision(amount <= 100, note="at most 100")


with budao.serve() as server, server.sync().worker([pay]), server.sync().create(approve=approve) as session:
    print("answer:", session.run("call pay with amount=70").answer)
    print("answer:", session.run("call pay with amount=7000").answer)
    print("paid:", paid)
