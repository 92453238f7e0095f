# 命令行文字。

acp-accept-edits = 接受编辑
acp-api-key-in-the-environment = 环境变量中的 API 密钥
acp-calls-that-would-have-to-ask = 需要询问的调用一律直接拒绝
acp-configuration-valid = 有效；{ $count } 个 MCP 服务器
acp-default = 默认
acp-dont-ask = 不询问
acp-edits-in-the-working-directories-run = 工作目录内的编辑直接执行，其余调用先询问
acp-failed = 有问题
acp-no-home-directory = 没有主目录
acp-no-home-directory-use-journal-url = 没有主目录；请用 --journal URL
acp-ok = 正常
acp-run-claude-and-type-login = 请运行 `claude` 并输入 `/login`
acp-run-claude-in-a-terminal-type = 请在终端运行 `claude`，输入 `/login`，然后重试。
acp-server-tools = { $server }：{ $tools } 个工具
acp-set-anthropic-api-key-or-openai = 请在编辑器设置中为此智能体设置模型服务的密钥，例如 ANTHROPIC_API_KEY 或 OPENAI_API_KEY，然后重新启动。
acp-sign-in-with-the-claude-cli = 用 Claude CLI 登录
acp-split-a-question-into-tasks-solve = 把问题拆成任务，逐一解决后汇总
acp-still-starting = 仍在启动
acp-the-question = 问题
acp-will-be-created = 将创建 { $path }

anomalies-no-anomalies-found = 没有发现异常。

anomaly-ended_at_once = 立即结束
anomaly-ended_without_text = 没有回答就结束
anomaly-message_right_after_end = 刚结束就收到新消息
anomaly-result_dropped = 丢弃了属于其他轮次的结果
anomaly-silence = 长时间没有记录

chat-a-note-for-the-model = 给模型的附言
chat-ago-days = { $count } 天前
chat-ago-hours = { $count } 时前
chat-ago-minutes = { $count } 分前
chat-ago-seconds = { $count } 秒前
chat-allow-call = 是否允许执行？
chat-choose-type-to-search-enter-resume = ↑/↓ 选择 · 输入文字搜索 · Enter 继续 · Esc 退出
chat-earlier-messages = ……更早的内容：`budao replay { $id }`
chat-enter-deny-with-this-note-esc = Enter 拒绝并附言告知模型 · Esc 返回
chat-enter-send-alt-enter-newline-ctrl = Enter 发送 · Alt-Enter 换行 · Ctrl-T 故障 · PgUp/PgDn 滚动 · Ctrl-D 退出
chat-esc-stop-ctrl-t-faults-pgup = Esc 停止 · Ctrl-T 故障 · PgUp/PgDn 滚动 · Ctrl-D 退出
chat-in = 等待
chat-mcp-text-unusable = 服务器没有返回文本，或者文本超过了一条消息的上限。
chat-new = 新会话
chat-next-try-in = 下次重试还有
chat-no = 拒绝
chat-no-answer-in-time = 超时未回答
chat-no-matches = {"  "}没有匹配
chat-no-mcp-servers = 这里没有配置 MCP 服务器。
chat-no-messages-yet-to-try-the = 还没有对话。`demo` 模型可以试：读取 README.md 并统计标题
chat-no-sessions-to-resume = 没有可恢复的会话。
chat-not-recovered = 未恢复
chat-nothing-none-of-its-calls-failed = 未告知：不是模型的调用失败
chat-nothing-offered = 已连接的 MCP 服务器都没有提供。
chat-other-faults-scroll-esc-back = ←/→ 其他故障 · ↑/↓ 滚动 · Esc 返回
chat-queued = 排队中
chat-ready = 就绪
chat-repaired = 已修正：
chat-resume-which-session = 继续哪个会话？
chat-scroll-ctrl-t-faults = ↑/↓ 滚动 · Ctrl-T 故障
chat-step = 第 { $count } 步
chat-stopping = 正在停止…
chat-to-resume = 继续对话：
chat-to-the-model = 告知模型
chat-to-the-operator = 告知运维
chat-to-the-user = 告知用户
chat-too-many-commands-at-once-try = 操作过多，请稍后再试。
chat-try = 重试
chat-try-2 = 尝试
chat-type-a-message = 输入消息
chat-withdrawn = 已撤回
chat-y-answer-n-decline = [y] 回答  [n] 拒绝回答  [Esc] 停止
chat-y-opened-n-decline = [y] 我已打开  [n] 拒绝  [Esc] 停止
chat-one-value-a-line = 每行一个值，写作 名称: 值。Enter 提交，Alt-Enter 换行，Esc 返回
chat-unknown-mcp-server = 没有名为 `{ $server }` 的 MCP 服务器。
chat-usage-prompt = 用法：/prompt 服务器 名称 键=值 …（/prompts 列出全部）
chat-usage-resource = 用法：/resource 服务器 URI 消息（/resources 列出全部）
chat-y-yes-n-no-w-no = [y] 允许  [n] 拒绝  [w] 拒绝并附言  [Esc] 停止
chat-yes = 允许

config-created-with-every-key-and-its = 已创建，包含每个键及其默认值。
config-is-valid = 有效
config-no-configuration-file-found-the-defaults = 没有配置文件，使用默认值。

count-already-existed = { $count } 个已存在
count-calls = { $count } 个调用
count-commands = { $count } 条命令
count-lines-below = { $count } 行在下方
count-new-records = { $count } 条新记录
count-questions-wait-for-you = { $count } 个问题等您回答
count-records = { $count } 条记录
count-sessions = { $count } 个会话
count-sessions-copied = { $count } 个会话已复制
count-sessions-exported = { $count } 个会话已导出
count-sessions-imported = { $count } 个会话已导入
count-steps = { $count } 步
count-stored-outputs = { $count } 份已存输出
count-tasks-planned = { $count } 个任务已规划
count-tokens = { $count } 词元

demo-acts-passed = 幕通过
demo-are-you-there = 你在吗？
demo-claim-answer_is_whole = 回答完整
demo-claim-corrected_itself = 随后正确调用了同一工具
demo-claim-killed_mid_turn = 进程在回合中途被信号 9 终止
demo-claim-line_was_cut = 客户端发现连接断开
demo-claim-no_gaps = 每个会话的位置从 1 起连续
demo-claim-nothing_missing = 两个客户端收到的事件相同
demo-claim-nothing_twice = 每个事件只到一次，按顺序
demo-claim-recovered = 恢复已记录
demo-claim-refused_twice = 模型两次拒绝请求
demo-claim-resumed = 另一个进程恢复了会话
demo-claim-run_went_on_meanwhile = 其间运行没有停
demo-claim-same_as_happened = 日志与进程打印的内容一致
demo-claim-told_of_the_mistake = 模型收到了错误信息
demo-claim-tool_ran_once = 工具只运行一次：记录与账本一致
demo-claim-turn_ended = 回合正常结束
demo-claim-waited_as_long_as_asked = 重试不早于服务要求的时间
demo-connection-cut-the-client-is-at = 连接被切断；客户端在
demo-connection-restored-the-run-is-at = 连接恢复；运行已到
demo-correct-after = 请看 ERR_VAL_002 那一行：模型收到的正是这段文字。详细说明：`budao explain ERR_VAL_002`
demo-correct-before = 内置演示模型会用错误的参数调用工具。错在哪里，它只能从错误信息里得知。
demo-correct-title = 智能体犯错，自己改正
demo-count-to-12-slowly = 慢慢数到12
demo-cut-after = 请看断线时和重连后的位置：客户端报告自己的最后位置，服务器发送其后的事件。
demo-cut-before = 服务器运行一个数数的智能体，客户端跟随它。客户端的连接被切断一段时间，智能体继续数。另一个客户端始终在线，用于对比。
demo-cut-title = 客户端断线，然后重连
demo-five-failures-and-the-recovery-from = 五次故障，以及各自的恢复。每条命令都是本程序的真实进程；下面的输出取自它的记录，并逐项核对。不需要网络，也不需要密钥。
demo-here-i-am-again = 我回来了。
demo-journal = 日志文件：
demo-kill-after = 请看账本里只有一行：已完成的调用没有再次运行。未完成的回答作废，重新生成。
demo-kill-before = 智能体先用工具往账本写一行，然后回答。回答到一半，进程收到 SIGKILL。另一个进程恢复该会话。
demo-kill-title = 进程被杀，回合继续
demo-line = 行
demo-read-readme-md-and-count-its = 读取 README.md 并统计标题
demo-replay-after = 请看被杀前后的记录：两个进程写下了一段连续的历史。
demo-replay-before = 从日志中读回本次演示的每个会话。这里展示进程被杀的那一个。
demo-replay-title = 重放全部记录
demo-the-ledger-has-its-line-and = 账 本 已 有 这 一 行， 无 论 我 出 什 么 事， 都 不 会 写 第 二 次。
demo-the-records-stay-in-that-folder = 记录留在该文件夹中，直到您删除它。再次查看：
demo-wait-after = 请看两次等待：第一次是服务要求的，第二次由重试策略决定。两者都在日志里，重启后仍然有效。
demo-wait-before = 脚本模型两次回答 429，第一次还指定了等待时间。重试循环与真实模型所用的相同。
demo-wait-title = 模型限流，然后恢复
demo-write-it-down = 记下来

doctor-configuration = 配置
doctor-engine = 引擎
doctor-journal = 日志库
doctor-log_file = 日志文件
doctor-login = 登录
doctor-models = 模型
doctor-permission = 权限
doctor-tool_server = 工具服务器

form-address = { $server } 请你打开 { $host } 上的一个地址：{ $message }（{ $url }）
form-yes-words = 是 对 y yes true
form-no-words = 否 不 n no false
form-question = { $server } 询问：{ $message }
transcript-timer-set = 已设置定时器：
transcript-next-at = 下次触发
transcript-timer-cancelled = 已取消定时器：
timers-none = 没有设置定时器。
timers-cancel-waits = 取消请求在等待服务器，会在定时器触发之前生效。
timers-cancelled = 已取消，定时器不再触发。
doubts-none = 没有结果不明的调用。
doubts-settle-waits = 确认结果在等待运行此会话引擎的服务器，服务器加载会话时会记录它。
doubts-settled = 已确认。模型会在下一步读到，在此之前不会执行任何调用。
doubts-settled-foreign = 已确认。智能体会随会话的下一条消息读到，在此之前不会执行任何调用。

explain-also = 另有 { $others } 种错误也用编号 { $number }：`budao explain --list { $number }`
explain-did-you-mean = 您要找的可能是：
explain-kinds =
    { $count ->
        [0] 没有匹配的错误种类。
       *[other] 共 { $count } 种。用 `budao explain 代码` 查看详情。
    }
explain-meaning = { $value }：{ $meaning }
explain-to-list-all-kinds = 列出全部种类：`budao explain --list`
explain-unknown = 未知的代码、编号或名称：`{ $what }`

journal-break-altered = 记录 { $seq } 至 { $to } 之间有记录被改动
journal-break-anchor = 截至记录 { $seq } 的历史与先前的报告不符
journal-break-appended = 记录 { $seq } 至 { $to } 与之前的记录不相接：由其他程序写入
journal-break-removed = 记录 { $seq } 至 { $to } 已被删除
journal-break-reordered = 记录 { $seq } 至 { $to } 被移到了别的位置
journal-break-start = 记录 { $seq } 至 { $to } 与之前已移除记录的摘要不相接
journal-break-truncated = 末尾缺失：从记录 { $seq } 起，至少到 { $to }
journal-break-unproven = 记录 { $seq } 及其后的记录没有摘要
journal-chain-broken = 断裂
journal-chain-rest-unproven = 断裂之后的内容无法证明。{"\u000A"}
journal-chain-whole = 每条记录都与写入时一致。{"\u000A"}
journal-checking = 正在检查
journal-compacted = 压缩前 { $before }，压缩后 { $after }
journal-copied-to = 已复制到
journal-copying = 正在复制
journal-damaged = 损坏
journal-data-loss-found-earlier = 此前发现数据丢失：
journal-epochs-renewed = 每个会话在下次使用时都会得到新的 epoch。
journal-intact = 完好：{ $sessions }、{ $records }、{ $commands }、{ $blobs }。
journal-none = 无
journal-sessions-have-another-history-in-the = 个会话在目标中有另一段历史，未作改动
journal-sessions-truncated-at-the-damage = 个会话在损坏处截断
journal-readable = 仍可读取
journal-the-journal-is-intact = 日志完好。{"\u000A"}
journal-verified = 已验证：{ $sessions }、{ $records }。

mcp-approved = 已批准：{ $tools }
mcp-disabled = 停用
mcp-enabled = 启用
mcp-logged-in = 已登录 { $server }（{ $issuer }）。
mcp-logged-out = 已退出 { $server } 的登录。
mcp-login-device = 在任意设备上打开 { $url }，输入代码 { $code }
mcp-login-expired = 已过期
mcp-login-issuer = 授权服务器
mcp-login-more-rights = 需要更多权限
mcp-login-none = 未登录
mcp-login-open =
    在浏览器中打开以下网址并登录：
    { $url }
    如果浏览器在另一台机器上，请把它跳转到的网址或代码粘贴到这里。
mcp-login-page = 登录成功，可以关闭此页面。
mcp-login-renews = 自动续期
mcp-login-scopes = 权限
mcp-login-until = 有效期至
mcp-login-valid = 已登录
mcp-no-remote = 没有配置需要登录的服务器。
mcp-none = 没有配置 MCP 服务器。可用 --mcp、--mcp-config 或配置文件中的 [[mcp]] 添加。
mcp-not-logged-in = 没有 { $server } 的登录。
mcp-nothing-changed = 该服务器的工具没有变化。
mcp-server = 服务器
mcp-state = 状态
mcp-target = 命令或网址
mcp-tool-count = { $count } 个工具
mcp-transport = 传输方式
replay-agrees = { $sessions }一致，{ $records }；{ $taken } 条按记录采用，跳过其他引擎的会话 { $skipped } 个
replay-differs = 在记录 { $seq } 处不同
replay-ends = （历史到此结束）
replay-nothing = （没有决策会产生它）
replay-recorded = 记录
replay-today = 现在

main-did-you-mean = 您是否要写
main-mark = ？

man-see-budao-help = 请看 `budao --help`。
man-unknown-command = 未知命令：

nodes-address = 地址
nodes-alive = 正常
nodes-clients = 客户端
nodes-count = {" "}· { $count } 个节点
nodes-count-gone = {" "}· { $count } 个节点，{ $gone } 个失联
nodes-cpu = CPU
nodes-draining = 正在退出
nodes-gone = 失联
nodes-last-beat = 上次心跳
nodes-none = 没有服务器在使用此日志。
nodes-seconds-ago = { $count } 秒前
nodes-sessions = 会话
nodes-state = 状态
nodes-version = 版本

run-cancelled = 已取消。
run-no-turn-is-running = 没有正在运行的回合。
run-nothing-to-resume = 没有需要恢复的工作。
run-session = 会话
run-the-last-turn-failed-continue-it = 上一回合失败；继续该回合：budao sessions retry
run-you = 用户

screen-this-needs-a-terminal-without-one = 此命令需要终端。没有终端时请用

serve-listening-press-ctrl-c-to-stop = 正在监听。按 Ctrl-C 停止。
serve-resumed-sessions = 已恢复的会话

sessions-answered = 已作答：
sessions-confirm-retry = 重试这些回合（{ $count } 个）？[y/N]{" "}
sessions-deleted = 已删除
sessions-faults = 次故障
sessions-left-out-because-they-cannot-be = 已略去无法重试的会话（计划、子会话、其他引擎）：
sessions-no-sessions-found = 没有找到会话。
sessions-nobodys-a-message-re-opens-the = 无；发送消息会重新打开会话
sessions-none = 无
sessions-nothing-was-retried-add-yes-to = 尚未重试。加上 `--yes` 即可重试这些回合。
sessions-recovered = 次已恢复
sessions-stopped-turns-under-way-go-on = 已停止。正在进行的回合可由服务器或 `budao resume ID` 继续。
sessions-the-agents-a-turn-runs = 智能体：回合正在运行
sessions-there-is-no-failed-turn-to = 没有可重试的失败回合。
sessions-unknown-session = 未知会话
sessions-waits-for-a-decision = 等待确认：
sessions-yours-a-call-waits-for-a = 轮到您：有调用等待决定；`budao resume` 会再次询问
sessions-yours-no-process-runs-the-turn = 轮到您：没有进程在运行该回合；用 `budao resume` 继续
sessions-yours-send-a-message = 轮到您：发送消息
sessions-yours-the-last-turn-failed-continue = 轮到您：上一回合失败；用 `budao sessions retry` 继续，或发送消息

smcp-added = 已添加
smcp-allow-call = 是否允许执行？
smcp-allowed = 允许的值：
smcp-connection-lost = 连接已断开
smcp-done = 完成
smcp-down = 未连接
smcp-entered = 进入
smcp-example = 示例：
smcp-its-servers = 其服务器
smcp-joined = 已加入
smcp-left = 离开
smcp-listening-on = 正在监听
smcp-missed-events = 错过的事件：
smcp-missing-name-see-help = 缺少名称；请看 `help`
smcp-no-computer-is-in-the-room = 房间里没有计算机
smcp-none = （无）
smcp-number = 编号：
smcp-present = 在场
smcp-ready = 就绪
smcp-rejoined = 已重新加入
smcp-retry-in = 重试等待
smcp-room = 房间
smcp-starting = 正在启动
smcp-status-show-the-room-and-the =
    status               显示房间与各服务器的状态
    tools                列出提供的工具
    call TOOL [JSON]     调用工具，不需确认
    history              列出最近的调用，不含机密
    add JSON|FILE        添加服务器，或替换同 id 的服务器
    remove ID            停止并移除服务器
    start ID             启动服务器，或立即重试
    stop ID              停止服务器
    join ROOM            进入另一个房间
    leave                离开房间，保持连接
    quit                 停止并退出{"\u000A"}
smcp-still-starting = 仍在启动：
smcp-stopped = 已停止
smcp-tools = 个工具
smcp-tools-changed = 工具已变更
smcp-unknown-command-see-help = 未知命令；请看 `help`
smcp-waiting-for = 正在等待

spending-amount = { $cost }（{ $tokens } token）
spending-estimated = ，其中 { $amount } 为估算：模型服务没有报告用量，或请求中断
spending-line = { $scope }  已用 { $spent }，预留 { $reserved }，{ $requests } 次请求
spending-none = 今天没有花费。
spending-raised = 由 { $by } 追加 { $amount }

state-closed = 已关闭
state-failed = 失败
state-idle = 空闲
state-running = 运行中
state-waiting_for_decision = 等待回答

stop-cancelled = 已取消
stop-end_turn = 已完成
stop-failed = 失败
stop-max_tokens = 达到词元上限
stop-max_turn_requests = 达到步数上限
stop-refusal = 模型拒绝

tools-about = 说明
tools-away = 离线
tools-calls = 调用
tools-connected = 已连接
tools-draining = 正在退出
tools-flags = 标志
tools-none = 没有工作进程向这台服务器提供工具。
tools-owner = 所有者
tools-process = 进程
tools-ready = 就绪
tools-session = 会话
tools-state = 状态
tools-tool = 工具
tools-version = 版本
tools-worker = 工作进程
top-calls = 调用
top-counts = { $running } 个运行中 · { $waiting } 个等待回答
top-cut-off = 已中断
top-does-not-answer = {" "}· ✗ 没有应答
top-faults = 故障
top-faults-by-code = 故障（按代码）
top-faults-by-user = 故障（按用户）
top-held = 暂停
top-last = 最近
top-last-events = 最近事件
top-model-services = 模型服务
top-nodes = 节点
top-none = 无
top-not-available-remotely-see-the-servers = 远程不可用；请看服务器的网页
top-not-recovered = 未恢复
top-open = 开放
top-q-quit-w-window-sessions = q 退出 · w 时间窗 · ↑/↓ 会话
top-reading-the-journal = 正在读取日志…
top-recovered = 已恢复
top-recovery = 恢复
top-retries = 重试
top-doubts = 结果不明
top-sessions = 会话
top-steps = 步
top-still-counting = 仍在统计
top-turns = 回合
top-under-way = 个进行中
top-until = 直到
top-waiting = 个等待

transcript-allow-call = 是否允许执行？
transcript-allowed-by = 已允许：
transcript-calls-with-unknown-outcome = 结果未知的调用：
transcript-cancelled-by = 取消者：
transcript-cannot-tell = 查不清楚
transcript-closed-by = 关闭者：
transcript-denied-by = 已拒绝：
transcript-did-not-happen = 没有做
transcript-dropped-a-late-result-of-turn = 丢弃迟到的结果，回合
transcript-expired = 已过期
transcript-in = 等待
transcript-next-try-in = 再试前等待
transcript-not-recovered = 未恢复
transcript-older-messages-summarised = 已压缩的早期消息：
transcript-queued-message-withdrawn-by = 排队消息的撤回者：
transcript-reconciling = 中断的调用结果如何？
transcript-recovered-after = 已恢复，共尝试
transcript-repaired = 已修正：
transcript-requests-waiting-before-this-one = 前面等待的请求数：
transcript-resumed = 已恢复运行
transcript-retrying-the-failed-turn = 重试失败的回合
transcript-session-closed = 会话已关闭
transcript-session-ended-with-an-error = 会话因错误结束
transcript-the-service-does-not-work = 服务目前无法使用，
transcript-the-service-is-busy = 服务繁忙，
transcript-tokens = 词元
transcript-tries = 次，用时
transcript-try = 尝试
transcript-try-2 = 重试
transcript-turn = 回合
transcript-unfinished-answer-above-discarded = 以上未完成的回答作废
transcript-unknown-outcome-settled-by = 结果的确认者：
transcript-still-runs = 仍在运行；等待其结束
transcript-was-done = 已经做了

turn-number = 第 { $count } 轮

watch-allow-call = 是否允许执行？
watch-denied-there-is-no-terminal-to = {"  "}已拒绝：没有可供询问的终端。要允许此类调用：`--permission auto`
watch-for-details = 详细说明：
watch-nobody-could-be-asked = { $calls }需要批准但无人可问，任务可能没有完成。要允许此类调用：--permission auto
watch-answer-does-not-fit = {"  "}回答不符合要求：{ $mismatches }
watch-declined-there-is-no-terminal = {"  "}已拒绝回答：没有可供询问的终端。
watch-opened-y-yes-n-no = {"  "}已打开？[y] 是  [n] 拒绝 >{" "}
watch-fill-in-y-yes-n-no = {"  "}回答？[y] 是  [n] 拒绝 >{" "}
watch-y-yes-n-no = {"  "}[y] 允许  [n] 拒绝 >{" "}

missing-part = `{ $setting }` 需要 `{ $part }` 部分，而此程序构建时未包含它。
    如需包含，请运行：{ $command }
