//! Advice by audience: the model reads what it can do with its call, people read what people can do.

use budao_core::{
    Fault, Kind, Lang,
    fault::{Advice, Fact, NodeIdentity, render, text},
    tool::Failure,
};
use budao_testkit::faults;
use strum::VariantArray as _;

/// The lines of the model's tool result.
fn to_model(fault: &Fault, lang: Lang) -> Vec<String> {
    let failure = Failure { fault: fault.clone(), data: None, note: None };
    let told = render::render_for_model(&failure, lang);
    told.recommendations.into_iter().map(std::borrow::Cow::into_owned).collect()
}

/// The lines of every front end.
fn to_people(fault: &Fault, lang: Lang) -> Vec<String> {
    let lines = text::recommendations(fault, lang).into_iter();
    let lines: Vec<String> = lines.map(std::borrow::Cow::into_owned).collect();
    assert_eq!(render::render_for_editor(fault, lang).advice, lines, "an editor is a front end");
    lines
}

/// Faults of every kind: with all facts, with none, not started, and without a confirmed end.
fn every_fault() -> impl Iterator<Item = Fault> {
    Kind::VARIANTS.iter().flat_map(|kind| {
        let (sample, bare) = (faults::sample(*kind), faults::bare(*kind));
        [sample.clone(), bare.clone(), bare.not_started(), sample.unconfirmed()]
    })
}

#[test]
fn two_audiences_share_advice_only_where_the_catalog_row_allows_it() {
    for fault in every_fault().filter(|fault| !fault.row().same_advice) {
        for lang in Lang::VARIANTS {
            let people = to_people(&fault, *lang);
            let shared: Vec<_> =
                to_model(&fault, *lang).into_iter().filter(|line| people.contains(line)).collect();
            assert_eq!(shared, [""; 0], "{lang} {fault}");
        }
    }
}

#[test]
fn advice_written_for_one_audience_never_reaches_the_other() {
    for kind in Kind::VARIANTS {
        let fault = faults::sample(*kind)
            .advise_model([Advice::Custom("line of the model".into()), Advice::known("mcp-server")])
            .advise_user([Advice::Custom("line of the user".into()), Advice::known("todo-rules")]);
        for lang in Lang::VARIANTS {
            let (model, people) = (to_model(&fault, *lang), to_people(&fault, *lang));
            assert_eq!(model[0], "line of the model", "{kind}");
            assert_eq!(people[0], "line of the user", "{kind}");
            assert!(
                model.iter().all(|line| !people.contains(line)),
                "{kind}: {model:?} {people:?}"
            );
            let peer = format!("{:?}", render::render_for_peer(&fault, *lang));
            assert!(!peer.contains("line of the model"), "{peer}");
        }
    }
}

#[test]
fn advice_for_the_model_never_asks_for_what_only_people_can_do_and_the_reverse() {
    let only_people =
        ["operator", "restart", "settings", "Install", "Raise", "运维", "重启", "设置里"];
    let only_models = ["the user", "call the tool", "用户", "再次调用"];
    for fault in every_fault() {
        for lang in Lang::VARIANTS {
            for line in to_model(&fault, *lang) {
                let wrong = only_people.iter().find(|words| line.contains(**words));
                assert_eq!(wrong, None, "{lang} {fault}: {line}");
            }
            for line in to_people(&fault, *lang) {
                let wrong = only_models.iter().find(|words| line.contains(**words));
                assert_eq!(wrong, None, "{lang} {fault}: {line}");
            }
        }
    }
}

/// A confirmation that nobody answered ran nothing, whichever fault ends its call.
#[test]
fn no_advice_mentions_work_that_never_started() {
    let ended = [
        faults::bare(Kind::QuestionExpired),
        faults::bare(Kind::DeniedByPerson),
        faults::bare(Kind::NeedsConfirmation),
        faults::sample(Kind::DeadlinePassed).not_started(),
        faults::sample(Kind::Cancelled).not_started(),
    ];
    let doubts = ["already done", "may be done", "was done before", "已经做了", "可能已经"];
    for fault in ended {
        for lang in Lang::VARIANTS {
            let mut told = to_model(&fault, *lang);
            told.extend(to_people(&fault, *lang));
            told.extend([text::model_text(&fault, *lang), text::user_text(&fault, *lang)]);
            let told = told.join("\n");
            assert!(doubts.iter().all(|words| !told.contains(words)), "{fault}: {told}");
        }
    }
}

#[test]
fn the_operator_reads_the_address_of_a_network_fault_and_a_remote_user_does_not() {
    for kind in [Kind::ConnectionRefused, Kind::NetworkUnavailable] {
        let fault = faults::bare(kind).with(Fact::Host, "10.0.0.7:8080");
        assert_eq!(fault.address(), Some("10.0.0.7:8080"));
        assert!(fault.to_string().contains("(at 10.0.0.7:8080)"), "{fault}");
        for lang in Lang::VARIANTS {
            let mut told = to_people(&fault, *lang);
            told.push(text::user_text(&fault, *lang));
            assert!(!told.join("\n").contains("10.0.0.7"), "{told:?}");
        }
    }
    let elsewhere = faults::bare(Kind::DiskFull).with(Fact::Host, "10.0.0.7");
    assert_eq!(elsewhere.address(), None);
}

#[test]
fn a_host_that_records_hide_is_kept_for_operators_without_its_credentials() {
    let scrubber = budao_scrub::Scrubber::with_secrets(["internal-name-of-vault"]);
    let scrubbed = |host: &'static str| {
        faults::bare(Kind::ModelServerError).with(Fact::Host, host).scrub(&scrubber)
    };
    let fault = scrubbed("10.0.0.7:9000");
    assert_eq!(fault.detail().text(Fact::Host), Some("[private address]"));
    assert_eq!(fault.address(), Some("10.0.0.7:9000"));
    assert!(fault.to_string().contains("(at 10.0.0.7:9000)"), "{fault}");
    let again = fault.clone().scrub(&scrubber);
    assert_eq!(again, fault, "a second scrub changes nothing");
    let json = serde_json::to_string(&fault).unwrap();
    assert_eq!(serde_json::from_str::<Fault>(&json).unwrap(), fault, "it is recorded");
    for lang in Lang::VARIANTS {
        let mut told = to_model(&fault, *lang);
        told.extend(to_people(&fault, *lang));
        told.extend([text::model_text(&fault, *lang), text::user_text(&fault, *lang)]);
        assert!(!told.join("\n").contains("10.0.0.7"), "{told:?}");
    }
    let url = scrubbed("https://alice:hunter2hunter2@10.0.0.7:9000/v1?key=sk-1");
    assert_eq!(url.address(), Some("10.0.0.7:9000"));
    assert!(!format!("{url:?}").contains("hunter2"), "{url:?}");
    assert_eq!(scrubbed("internal-name-of-vault.lan:80").address(), None, "a configured secret");
    let server = NodeIdentity { node: "host-7:7333".into(), version: "1.2.3".into() };
    let mut hidden = fault;
    hidden.set_server(&server.into());
    hidden.set_server(&NodeIdentity::default().into());
    assert_eq!(hidden.server().map(|server| &*server.node), Some("host-7:7333"), "the first one");
    let told = to_people(&hidden, Lang::En).join("\n") + &to_model(&hidden, Lang::En).join("\n");
    assert!(!told.contains("host-7"), "{told}");
    assert!(hidden.hide_from_user());
    assert_eq!((hidden.address(), hidden.server()), (None, None));
    assert!(!hidden.hide_from_user(), "there is nothing left to hide");
}
