//! Chooses the language of the program's texts.

use budao_core::Lang;

use crate::terminal::Terminal;

/// The requested language, else the first supported locale of the environment, else English.
///
/// Only an unsupported language in `requested` is reported; unsupported locales are skipped silently.
pub(crate) fn choose(requested: Option<&str>, terminal: &Terminal) -> Lang {
    let Some(requested) = requested else {
        return sys_locale::get_locales().find_map(|tag| Lang::from_tag(&tag)).unwrap_or_default();
    };
    Lang::from_tag(requested).unwrap_or_else(|| {
        terminal.say(&format!(
            "Unsupported language `{requested}`, using English. Supported: `en`, `zh`"
        ));
        Lang::default()
    })
}
