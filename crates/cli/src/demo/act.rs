//! The acts, the claims each of them proves, and their texts.

use budao_core::Lang;

use crate::texts::localize;

/// One failure and the recovery from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Act {
    Correct,
    Wait,
    Cut,
    Kill,
    Replay,
}

/// A statement an act proves. Each is checked against records, files or exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Claim {
    ToldOfTheMistake,
    CorrectedItself,
    TurnEnded,
    RefusedTwice,
    WaitedAsLongAsAsked,
    Recovered,
    LineWasCut,
    RunWentOnMeanwhile,
    NothingMissing,
    NothingTwice,
    KilledMidTurn,
    Resumed,
    ToolRanOnce,
    AnswerIsWhole,
    NoGaps,
    SameAsHappened,
}

impl Act {
    pub(crate) const ALL: [Self; 5] =
        [Self::Correct, Self::Wait, Self::Cut, Self::Kill, Self::Replay];

    /// The act's claims, in the order they are checked.
    pub(crate) fn claims(self) -> &'static [Claim] {
        use Claim as C;
        match self {
            Self::Correct => &[C::ToldOfTheMistake, C::CorrectedItself, C::TurnEnded],
            Self::Wait => &[C::RefusedTwice, C::WaitedAsLongAsAsked, C::Recovered, C::TurnEnded],
            Self::Cut => {
                &[C::LineWasCut, C::RunWentOnMeanwhile, C::NothingMissing, C::NothingTwice]
            }
            Self::Kill => {
                &[C::KilledMidTurn, C::Resumed, C::ToolRanOnce, C::AnswerIsWhole, C::TurnEnded]
            }
            Self::Replay => &[C::NoGaps, C::SameAsHappened],
        }
    }

    pub(crate) fn title(self, lang: Lang) -> &'static str {
        match self {
            Self::Correct => {
                localize(lang, "An agent corrects its own mistake", "智能体犯错，自己改正")
            }
            Self::Wait => localize(lang, "A model limits the request rate", "模型限流，然后恢复"),
            Self::Cut => localize(lang, "A client loses its connection", "客户端断线，然后重连"),
            Self::Kill => {
                localize(lang, "A process is killed, its turn continues", "进程被杀，回合继续")
            }
            Self::Replay => localize(lang, "The records are replayed", "重放全部记录"),
        }
    }

    /// The introduction, shown before the act.
    pub(crate) fn beforehand(self, lang: Lang) -> &'static str {
        match self {
            Self::Correct => localize(
                lang,
                "The built-in demo model calls a tool with a wrong argument. It learns what is wrong only from the error \
                 message.",
                "内置演示模型会用错误的参数调用工具。错在哪里，它只能从错误信息里得知。",
            ),
            Self::Wait => localize(
                lang,
                "A scripted model answers 429 twice, the first time with a retry-after time. The retry loop is the one used \
                 for real models.",
                "脚本模型两次回答 429，第一次还指定了等待时间。重试循环与真实模型所用的相同。",
            ),
            Self::Cut => localize(
                lang,
                "A server runs an agent that counts, and a client follows it. The client's connection is cut and stays cut \
                 while the agent counts on. A second client stays connected for comparison.",
                "服务器运行一个数数的智能体，客户端跟随它。客户端的连接被切断一段时间，智能体继续数。另一个客户端始终在线，用于对比。",
            ),
            Self::Kill => localize(
                lang,
                "The agent appends a line to a ledger with a tool, then answers. In the middle of the answer its process gets \
                 SIGKILL. Another process resumes the session.",
                "智能体先用工具往账本写一行，然后回答。回答到一半，进程收到 SIGKILL。另一个进程恢复该会话。",
            ),
            Self::Replay => localize(
                lang,
                "Every session of this demo is read back from the journal. The one whose process was killed is shown.",
                "从日志中读回本次演示的每个会话。这里展示进程被杀的那一个。",
            ),
        }
    }

    /// The explanation shown after the act: which line of its output matters.
    pub(crate) fn look_at(self, lang: Lang) -> &'static str {
        match self {
            Self::Correct => localize(
                lang,
                "See the line with ERR_VAL_002: the model received exactly this text. For details: `budao explain \
                 ERR_VAL_002`",
                "请看 ERR_VAL_002 那一行：模型收到的正是这段文字。详细说明：`budao explain ERR_VAL_002`",
            ),
            Self::Wait => localize(
                lang,
                "See the two waits: the service asked for the first, the retry policy chose the second. Both are in the \
                 journal, so they survive a restart.",
                "请看两次等待：第一次是服务要求的，第二次由重试策略决定。两者都在日志里，重启后仍然有效。",
            ),
            Self::Cut => localize(
                lang,
                "See the positions at the cut and after it: the client sent its last position, and the server sent the \
                 events after it.",
                "请看断线时和重连后的位置：客户端报告自己的最后位置，服务器发送其后的事件。",
            ),
            Self::Kill => localize(
                lang,
                "See the ledger's single line: the finished call did not run again. The unfinished answer was discarded and \
                 written again.",
                "请看账本里只有一行：已完成的调用没有再次运行。未完成的回答作废，重新生成。",
            ),
            Self::Replay => localize(
                lang,
                "See the records around the kill: two processes wrote one continuous history.",
                "请看被杀前后的记录：两个进程写下了一段连续的历史。",
            ),
        }
    }
}

impl Claim {
    pub(crate) fn words(self, lang: Lang) -> &'static str {
        let (en, zh) = match self {
            Self::ToldOfTheMistake => ("the model received the error", "模型收到了错误信息"),
            Self::CorrectedItself => {
                ("it then called the same tool correctly", "随后正确调用了同一工具")
            }
            Self::TurnEnded => ("the turn ended normally", "回合正常结束"),
            Self::RefusedTwice => ("the model refused two requests", "模型两次拒绝请求"),
            Self::WaitedAsLongAsAsked => {
                ("the retry waited as long as the service asked", "重试不早于服务要求的时间")
            }
            Self::Recovered => ("the recovery was recorded", "恢复已记录"),
            Self::LineWasCut => ("the client noticed the lost connection", "客户端发现连接断开"),
            Self::RunWentOnMeanwhile => ("the run continued meanwhile", "其间运行没有停"),
            Self::NothingMissing => {
                ("both clients received the same events", "两个客户端收到的事件相同")
            }
            Self::NothingTwice => ("each event arrived once, in order", "每个事件只到一次，按顺序"),
            Self::KilledMidTurn => (
                "signal 9 ended the process in the middle of its turn",
                "进程在回合中途被信号 9 终止",
            ),
            Self::Resumed => ("another process resumed the session", "另一个进程恢复了会话"),
            Self::ToolRanOnce => {
                ("the tool ran once: records and ledger agree", "工具只运行一次：记录与账本一致")
            }
            Self::AnswerIsWhole => ("the answer is complete", "回答完整"),
            Self::NoGaps => ("no session has a gap in its positions", "每个会话的位置从 1 起连续"),
            Self::SameAsHappened => {
                ("the journal matches what the processes printed", "日志与进程打印的内容一致")
            }
        };
        localize(lang, en, zh)
    }
}
