//! Changes of the settings whose senders read them at the same moment.

use budao_core::{
    event::{Answer, CommandBody, Settings},
    remote::{OfferBounds, ToolOffer},
    tool::Permissions,
};

use crate::turn::play::Play;

fn remember(play: &mut Play, tool: &str) {
    play.command(CommandBody::RememberPermission { tool: tool.into() });
}

fn replace(play: &mut Play, settings: &Settings) {
    play.command(CommandBody::Settings { settings: Box::new(settings.clone()), before: None });
}

#[test]
fn settings_that_were_read_earlier_neither_revive_nor_lose_a_permission() {
    let mut play = Play::new();
    remember(&mut play, "write");
    let mut read_earlier = play.session.settings.clone();
    play.command(CommandBody::RevokePermission { tool: "write".into() });
    remember(&mut play, "shell");
    read_earlier.model = "other".into();
    replace(&mut play, &read_earlier);
    assert_eq!(play.session.settings.model, "other");
    assert_eq!(play.session.settings.permissions.remembered, ["shell"]);
    play.replayed();
}

#[test]
fn settings_that_were_read_earlier_leave_the_tools_of_workers() {
    let mut play = Play::new();
    let read_earlier = play.session.settings.clone();
    let offer = |text: &str| -> ToolOffer {
        serde_json::from_value(serde_json::json!({
            "worker": "billing", "by": "t/u",
            "tools": [{ "name": "pay", "description": text, "parameters": { "type": "object" }, "version": "v1" }],
        }))
        .unwrap()
    };
    let bounds = OfferBounds::default();
    play.command(CommandBody::OfferTools { offer: Box::new(offer("Pays.")), bounds });
    let settings = Settings { title: Some("new".into()), ..read_earlier };
    replace(&mut play, &settings);
    assert_eq!(play.session.settings.offers, [offer("Pays.")]);
    assert_eq!(play.session.settings.title.as_deref(), Some("new"));
}

#[test]
fn a_permission_is_remembered_once_revoked_twice_and_the_oldest_gives_way() {
    let mut play = Play::new();
    for number in 0..=Permissions::REMEMBERED_MAX {
        remember(&mut play, &format!("tool-{number}"));
    }
    let body = CommandBody::RememberPermission { tool: "tool-1".into() };
    assert_eq!(play.command(body).0, [""; 0], "it is remembered already");
    let remembered = &play.session.settings.permissions.remembered;
    assert_eq!(remembered.len(), Permissions::REMEMBERED_MAX);
    assert_eq!(remembered[0], "tool-1", "the oldest gave way");
    let revoke = || CommandBody::RevokePermission { tool: "tool-1".into() };
    assert_eq!(play.command(revoke()).0, ["settings_changed"]);
    let (names, answer) = play.command(revoke());
    assert_eq!(names, [""; 0]);
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    play.replayed();
}
