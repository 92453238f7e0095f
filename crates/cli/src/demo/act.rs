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
                localize(lang, "An agent errs and corrects itself", "智能体犯错，自己改正")
            }
            Self::Wait => localize(lang, "A model will not be hurried", "模型限流，然后恢复"),
            Self::Cut => localize(lang, "A client is cut off and comes back", "客户端断线，再回来"),
            Self::Kill => {
                localize(lang, "A process is killed, its turn goes on", "进程被杀，回合继续")
            }
            Self::Replay => localize(lang, "What was recorded is replayed", "重放所记录的一切"),
        }
    }

    /// The introduction, shown before the act.
    pub(crate) fn beforehand(self, lang: Lang) -> &'static str {
        match self {
            Self::Correct => localize(
                lang,
                "The built-in demo model calls a tool with a wrong argument. The error tells it what is wrong; it does \
                 not know otherwise.",
                "内置演示模型会用错误的参数调用工具。错在哪里，它只能从错误信息里得知。",
            ),
            Self::Wait => localize(
                lang,
                "A scripted model answers 429 twice, the first time with a wait it asks for. The retry loop is the real \
                 one.",
                "脚本模型两次回答 429，第一次还要求等待一段时间。重试循环是真实的那一个。",
            ),
            Self::Cut => localize(
                lang,
                "A server is started, a client watches an agent count, and the line between them is cut and stays away \
                 while the agent counts on. A second client, never cut, is the witness.",
                "启动一个服务器，客户端看着智能体数数；二者之间的连接被切断一段时间，智能体继续数。另一个从未断线的客户端作见证。",
            ),
            Self::Kill => localize(
                lang,
                "The agent writes a line to a ledger with a tool, then speaks. In mid-sentence its process gets SIGKILL. \
                 Another process resumes the session.",
                "智能体先用工具往账本写一行，然后说话。话说到一半，进程收到 SIGKILL。另一个进程接着运行该会话。",
            ),
            Self::Replay => localize(
                lang,
                "Every session of this demo is read back from the journal. Shown is the one that was killed.",
                "从日志中读回本次演示的每个会话。这里展示被杀的那一个。",
            ),
        }
    }

    /// The explanation shown after the act: which line of its output matters.
    pub(crate) fn look_at(self, lang: Lang) -> &'static str {
        match self {
            Self::Correct => localize(
                lang,
                "Look at the line with ERR_VAL_002: the model was told exactly that, and nothing else. `budao explain \
                 ERR_VAL_002` has the rest.",
                "请看 ERR_VAL_002 那一行：模型得知的正是这些，仅此而已。`budao explain ERR_VAL_002` 有全部说明。",
            ),
            Self::Wait => localize(
                lang,
                "Look at the waits: the first is what the service asked for, the second our own. Both are in the journal, \
                 so a restart would not forget them.",
                "请看两次等待：第一次是服务要求的，第二次是我们自己定的。都在日志里，重启也不会忘记。",
            ),
            Self::Cut => localize(
                lang,
                "Look at the position at the cut and the one after it: the client handed in where it was and was given \
                 the rest.",
                "请看断线处的位置和之后的位置：客户端交出自己到过的位置，得到余下的部分。",
            ),
            Self::Kill => localize(
                lang,
                "Look at the ledger's single line: what was done was not done again. What was being said was void, and \
                 said anew.",
                "请看账本里只有一行：做过的事没有再做。说到一半的话作废，重新说。",
            ),
            Self::Replay => localize(
                lang,
                "Look at the records around the kill: one story, told by two processes.",
                "请看被杀前后的记录：一个故事，由两个进程讲完。",
            ),
        }
    }
}

impl Claim {
    pub(crate) fn words(self, lang: Lang) -> &'static str {
        let (en, zh) = match self {
            Self::ToldOfTheMistake => ("the model was told of its mistake", "模型被告知错在哪里"),
            Self::CorrectedItself => {
                ("the same tool was then called rightly", "同一工具随后调用正确")
            }
            Self::TurnEnded => ("the turn ended well", "回合正常结束"),
            Self::RefusedTwice => ("the model refused twice", "模型两次拒绝"),
            Self::WaitedAsLongAsAsked => {
                ("the next try came no sooner than the service asked", "重试不早于服务要求的时间")
            }
            Self::Recovered => ("the recovery is on record", "恢复已记录"),
            Self::LineWasCut => {
                ("the client noticed that its line was cut", "客户端发现连接被切断")
            }
            Self::RunWentOnMeanwhile => ("the run went on meanwhile", "其间运行没有停"),
            Self::NothingMissing => {
                ("the client has every event the witness has", "见证者有的事件，客户端都有")
            }
            Self::NothingTwice => ("and each of them once, in order", "且各一次，按顺序"),
            Self::KilledMidTurn => (
                "the process died of signal 9 in the middle of its turn",
                "进程在回合中途死于信号 9",
            ),
            Self::Resumed => ("another process resumed the session", "另一个进程恢复了会话"),
            Self::ToolRanOnce => {
                ("the tool ran once, by record and by ledger", "工具只运行一次：记录与账本一致")
            }
            Self::AnswerIsWhole => ("the answer is whole", "回答完整"),
            Self::NoGaps => {
                ("every session has every position from 1 on", "每个会话的位置从 1 起无缺")
            }
            Self::SameAsHappened => {
                ("what the processes printed is what the journal has", "进程打印的就是日志所记的")
            }
        };
        localize(lang, en, zh)
    }
}
