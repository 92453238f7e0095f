# 给人看的文字。出错时说的话在错误目录里。

connected = 已连接。
heartbeat = 连接正常。
accepted = 已接受：{ $action }。
resume-complete = 欢迎回来，没有遗漏，错过的内容随后发送。
resume-gap = 欢迎回来，部分历史已不再保留，其余内容随后发送。
resume-expired = 会话已过期，请新建会话。
resume-epoch-mismatch = 历史已被替换，将从头发送。
replayed = { $count ->
    [0] 没有错过任何事件。
   *[other] 已补发 { $count } 个错过的事件。
}
state-exported = 会话状态已导出。
shutting-down = 服务器正在重启，请稍后重连，内容不会丢失。
taken-over = 此会话现由另一个连接控制。
try = （第 { $attempt } 次，共 { $max } 次）
try-and-wait = （第 { $attempt } 次，共 { $max } 次，{ $wait } 秒后重试）
