//! The language to speak.

use budao_core::Lang;

use crate::terminal::Terminal;

/// The language that was asked for, or the first one of the environment that we speak, or English.
///
/// A language we do not speak is worth a word only if somebody asked for it here and now.
pub(crate) fn choose(asked: Option<&str>, terminal: &Terminal) -> Lang {
    let Some(asked) = asked else {
        return sys_locale::get_locales().find_map(|tag| Lang::from_tag(&tag)).unwrap_or_default();
    };
    Lang::from_tag(asked).unwrap_or_else(|| {
        terminal.say(&format!(
            "There are no texts in `{asked}`, only in `en` and `zh`: English it is."
        ));
        Lang::default()
    })
}
