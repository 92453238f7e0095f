//! Rules for changes of the settings: a command that replaces them leaves what other commands grant as it is.

use super::{Event, Stepper};
use crate::{event::Settings, tool::Permissions};

impl Stepper<'_> {
    /// Replaces the settings. The sender may have read them before another command granted or revoked something, so
    /// workers' tools and remembered permissions stay as they are now; their own commands change them.
    pub(super) fn replace_settings(&mut self, mut settings: Settings) {
        let current = &self.session.settings;
        settings.offers.clone_from(&current.offers);
        settings.permissions.remembered.clone_from(&current.permissions.remembered);
        self.change_settings(settings);
    }

    /// Remembers the permission for a tool. At the bound, the oldest permission is dropped.
    pub(super) fn remember_permission(&mut self, tool: String) {
        let mut settings = self.session.settings.clone();
        let remembered = &mut settings.permissions.remembered;
        if remembered.contains(&tool) {
            return;
        }
        if remembered.len() >= Permissions::REMEMBERED_MAX {
            remembered.remove(0);
        }
        remembered.push(tool);
        self.change_settings(settings);
    }

    /// Forgets the permission for a tool; without such a permission, nothing changes.
    pub(super) fn revoke_permission(&mut self, tool: &str) {
        let mut settings = self.session.settings.clone();
        settings.permissions.remembered.retain(|name| name != tool);
        self.change_settings(settings);
    }

    pub(super) fn change_settings(&mut self, settings: Settings) {
        if settings != self.session.settings {
            self.emit(Event::SettingsChanged { settings });
            self.review_patience();
        }
    }
}
