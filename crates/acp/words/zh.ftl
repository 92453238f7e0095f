# 编辑器文字。

editor-options-all-calls-run-without-asking = 所有调用都不经询问直接执行
editor-options-ask = 询问
editor-options-auto = 自动
editor-options-default = 默认
editor-options-high = 高
editor-options-low = 低
editor-options-medium = 中
editor-options-mode = 模式
editor-options-model = 模型
editor-options-off = 关闭
editor-options-only-read-only-calls-run-nothing = 只执行只读调用，不写入也不运行任何东西
editor-options-plan = 计划
editor-options-read-only-calls-run-without-asking = 只读调用直接执行，其余调用先询问
editor-options-thinking = 思考

input-address = { $server } 请你打开 { $host } 上的一个地址：{ $message }（{ $url }）
input-leave-out = 不填
input-opened = 我已打开
input-question = { $server } 询问：{ $message }
input-yes = 是
outcome-the-model-declined-to-answer = 模型拒绝回答。

permission-allow = 允许
permission-always = 本会话始终允许 `{ $tool }`
permission-never = 本会话始终拒绝 `{ $tool }`
permission-reject = 拒绝

project-older-messages-were-summarised-for-the = 较早的消息已为模型做了摘要
project-the-answer-was-interrupted-and-starts = 回答中断，重新开始
project-the-failed-turn-continues = 失败的回合继续运行
project-the-session-was-resumed = 会话已恢复

user-question-another-answer = 其他回答
user-question-do-not-answer = 不回答
user-question-the-agent-asks = 智能体提问

wait-held =
    { $seconds ->
        [none] { $what }；前面还有 { $before } 个请求在等待
       *[other] { $what }；{ $seconds } 秒后再试；前面还有 { $before } 个请求在等待
    }
wait-retry = { $what }；{ $seconds } 秒后重试（第 { $next } 次，共 { $max } 次）

wait-service-busy = 服务繁忙
