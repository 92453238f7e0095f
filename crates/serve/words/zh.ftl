# 给用户看的文本。错误的文本在错误目录里。

connected = 已连接。
heartbeat = 连接正常。
accepted = 已接受。
resume-complete = 已重新连接，错过的事件随后发送。
resume-gap = 已重新连接，部分历史已不再保留，其余内容随后发送。
resume-expired = 会话已过期，请新建会话。
resume-epoch-mismatch = 历史已被替换，将从头发送。
replayed = { $count ->
    [0] 没有错过任何事件。
   *[other] 已补发 { $count } 个错过的事件。
}
state-exported = 会话状态已导出。
shutting-down = 服务器正在重启，请稍后重连，内容不会丢失。
try = （第 { $attempt } 次，共 { $max } 次）
try-and-wait = （第 { $attempt } 次，共 { $max } 次，{ $wait } 秒后重试）

session-created = 会话已就绪。
session-closed = 会话已关闭。
session-failed = 会话因错误结束，发送消息即可重新打开。
session-resumed = 会话中断后已恢复。
settings-changed = 设置已更改。
snapshot = 会话的当前状态，更早的事件已省略。
tasks-given = 待解决的任务（{ $count } 个）：{ $question }
cancelling = 正在停止……
call-reconciling = 正在向 { $tool } 查明中断的调用结果如何。
call-reconciled = 已向 { $tool } 查询中断的调用结果如何。
doubt-settled = { $tool } 不明的结果已经确认。
timer-set = 定时器 { $timer } 下次触发：{ $next }。
timer-cancelled = 定时器 { $timer } 已取消。
message-withdrawn = 消息已撤回，不会再作答。
turn-retried = 失败的运行从中断处继续。
interrupted = 运行已停止。
answer-ready = 回答已生成。

thinking = 正在思考……
answer-abandoned = 已撤回未完成的回答，正在重新生成。
calls-wanted = { $count ->
    [0] 模型拒绝回答。
   *[other] 正在调用 { $count } 个工具。
}
history-compacted = 对话已精简，以适应长度限制。

tool-call = 正在使用工具 { $tool }……
tool-done = 工具 { $tool } 已完成。
call-noted = 工具 { $tool } 有新消息。
ask-address = { $server } 请你打开 { $host } 上的一个地址：{ $message }
ask-input = { $server } 询问：{ $message }
confirm-call = 请确认：使用工具 { $tool }。
confirm-raise-cap = 已达费用上限 { $setting }：{ $cap } 中已用 { $spent }。是否再允许 { $more }？
cap-raised = 费用上限 { $setting } 已提高 { $more }。
confirm-plan = { $named ->
    [0] 请确认计划（{ $count } 个任务）。
   *[other] 请确认计划（{ $count } 个任务）：{ $summary }
}
question-confirmed = 已确认。
question-declined = 已拒绝。
question-expired = 该确认未在限期内得到答复。
child-opened = 一个子智能体已启动。
child-ended = 一个子智能体已结束。
todos-changed = 待办清单已更新。

observer-lost = 一个观察者的连接已断开，运行继续。
request-held = { $reason ->
    [outage] { $wait ->
        [none] 服务暂时不可用。
        [0] 服务暂时不可用，现在再试。
       *[other] 服务暂时不可用，{ $wait } 秒后再试。
    }
   *[other] { $wait ->
        [none] 服务繁忙。
        [0] 服务繁忙，现在再试。
       *[other] 服务繁忙，{ $wait } 秒后再试。
    }
}{ $before ->
    [0] { "" }
   *[other] 前面还有 { $before } 个请求在等待。
}
retry = { $wait ->
    [0] 现在重试（第 { $next } 次，共 { $max } 次）。
   *[other] 将在 { $wait } 秒后重试（第 { $next } 次，共 { $max } 次）。
}
recovery-started = 正在恢复：精简对话以适应长度限制。
recovery-success = 已恢复，运行继续。

plan-start = 正在规划：{ $question }
plan-completed = { $named ->
    [0] 计划已生成（{ $count } 个任务）。
   *[other] 计划已生成（{ $count } 个任务）：{ $summary }
}
plan-cancelled = 计划已取消。
replanning = 已要求重新规划。
solver-start = 正在处理：{ $title }
solver-completed = 已完成：{ $title }
solver-cancelled = 已停止：{ $title }
solver-restarted = 重新开始：{ $title }
task-stopping = 正在停止任务……
task-restarting = 正在停止任务，随后重新开始……
aggregate-start = 正在汇总结果……
aggregate-completed = 结果已汇总。
aggregate-cancelled = 汇总已停止。
pipeline-completed = { $status ->
    [success] 全部完成。
    [partial_success] 已完成，但并非所有任务都成功。
    [cancelled] 运行已停止。
   *[other] 运行失败。
}

front-end-went-on = 用户没有提供这次调用的结果，就继续了对话。
front-end-question-open = 之前的问题还在等待回答，请先回答它。
