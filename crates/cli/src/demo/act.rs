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
        self.text("title", lang)
    }

    /// The introduction, shown before the act.
    pub(crate) fn beforehand(self, lang: Lang) -> &'static str {
        self.text("before", lang)
    }

    /// The explanation shown after the act: which line of its output matters.
    pub(crate) fn look_at(self, lang: Lang) -> &'static str {
        self.text("after", lang)
    }

    fn text(self, part: &str, lang: Lang) -> &'static str {
        localize(lang, &format!("demo-{}-{part}", <&str>::from(self)))
    }
}

impl Claim {
    pub(crate) fn words(self, lang: Lang) -> &'static str {
        localize(lang, &format!("demo-claim-{}", <&str>::from(self)))
    }
}
