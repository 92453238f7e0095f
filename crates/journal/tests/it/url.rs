//! Opening a journal from a URL.

use budao_core::fault::{Fact, Fault, Kind};
use budao_journal::{Access, Backends, open};
use budao_testkit::world::system as world;

fn received(fault: &Fault, fact: Fact) -> String {
    fault.detail().text(fact).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_path_and_a_sqlite_url_name_the_same_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db").display().to_string();
    open(&path, world()).await.unwrap().close().await;
    for url in [format!("sqlite:{path}"), format!("sqlite://{path}")] {
        let journal = Backends::embedded().open(&url, Access::Existing, world()).await.unwrap();
        assert_eq!(journal.kind(), "sqlite", "{url}");
        journal.close().await;
    }
}

#[tokio::test]
async fn a_journal_in_memory_leaves_no_file_and_cannot_exist_before() {
    let journal = open("memory:", world()).await.unwrap();
    assert_eq!(journal.kind(), "memory");
    let fault = Backends::embedded().open("memory:", Access::Existing, world()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::NoJournal);
    let inspected = Backends::embedded().of("memory:").unwrap().inspect("memory:").await.unwrap();
    assert_eq!(inspected.file, None);
}

#[tokio::test]
async fn an_unknown_scheme_is_refused_by_its_name_and_without_its_password() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("mongodb://user:secret@host/{}", directory.path().display());
    let fault = open(&url, world()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::ConfigurationWrong);
    assert_eq!(received(&fault, Fact::Received), "mongodb:");
    assert_eq!(received(&fault, Fact::Expected), "a path, memory: or sqlite:PATH");
    assert!(!format!("{fault:?}").contains("secret"));
}

#[tokio::test]
async fn a_url_without_a_path_is_refused() {
    for url in ["", "sqlite:", "sqlite://"] {
        let fault = open(url, world()).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{url:?}");
    }
}

#[tokio::test]
async fn an_unsupported_operation_is_refused_with_the_name_of_the_backend() {
    let journal = open("memory:", world()).await.unwrap();
    let fault = journal.stats().await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalUnsupported);
    assert_eq!(received(&fault, Fact::Service), "memory");
    let memory = Backends::embedded();
    let fault = memory.of("memory:").unwrap().check("memory:", Box::new(|_, _| {})).await;
    assert_eq!(fault.unwrap_err().kind(), Kind::JournalUnsupported);
}
