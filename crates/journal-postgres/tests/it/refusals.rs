//! What is wrong with an address, a login, a database or a server is named, and nothing is created.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{
    marker_proxy::{Action, MarkerProxy},
    world,
};
use budao_core::{
    fault::{Fact, Fault, Kind, text},
    lang::Lang,
};
use budao_journal::{Access, Admin as _, Backend as _};
use budao_journal_postgres::{Credentials, Postgres, PostgresBackend, PostgresOptions};
use budao_testkit::{
    port::Refusing,
    postgres::{PostgresServer, ROLE_WITH_PASSWORD},
};

async fn open_as(url: &str, credentials: &Credentials) -> Result<Postgres, Fault> {
    Postgres::open(url, Access::Create, credentials, world(), PostgresOptions::default()).await
}

async fn refused(url: &str) -> Fault {
    let fault = open_as(url, &Credentials::default()).await.unwrap_err();
    for lang in [Lang::En, Lang::Zh] {
        let words = text::user_text(&fault, lang);
        assert!(!words.contains('{') && !words.is_empty(), "{words}");
    }
    fault
}

fn fact(fault: &Fault, fact: Fact) -> String {
    fault.detail().text(fact).unwrap_or_default().to_owned()
}

/// The number of tables outside of PostgreSQL's own.
fn tables(server: &PostgresServer) -> String {
    server.sql(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')",
    )
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_its_address() {
    let Some(server) = PostgresServer::shared() else { return };
    let nobody = Refusing::take();
    let closed = nobody.address();
    let fault = refused(&server.url_at(closed, "a")).await;
    assert_eq!(fault.kind(), Kind::JournalUnreachable, "{fault:?}");
    assert_eq!(fact(&fault, Fact::Path), format!("postgres://postgres@{closed}/postgres"));
    let fault = refused("postgres://me@host.invalid/db?sslmode=disable").await;
    assert_eq!(fault.kind(), Kind::JournalUnreachable, "{fault:?}");
    assert_eq!(fact(&fault, Fact::Host), "host.invalid");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named_and_not_created() {
    let Some(server) = PostgresServer::shared() else { return };
    let fault = refused(&format!("postgres://postgres@{}/nowhere", server.address())).await;
    assert_eq!(fault.kind(), Kind::JournalNoDatabase, "{fault:?}");
    assert!(fact(&fault, Fact::Path).ends_with("/nowhere"));
    assert_eq!(server.sql("SELECT count(*) FROM pg_database WHERE datname = 'nowhere'"), "0");
}

#[tokio::test]
async fn a_password_comes_from_the_address_the_environment_or_a_file_and_is_never_shown() {
    let Some(server) = PostgresServer::start() else { return };
    server.sql(&format!("CREATE ROLE {ROLE_WITH_PASSWORD} LOGIN PASSWORD 'hush-hush'"));
    server.sql(&format!("CREATE DATABASE secured OWNER {ROLE_WITH_PASSWORD}"));
    let url = |login: &str| format!("postgres://{login}@{}/secured", server.address());
    for login in [ROLE_WITH_PASSWORD.to_owned(), format!("{ROLE_WITH_PASSWORD}:wrong-wrong")] {
        let fault = refused(&url(&login)).await;
        assert_eq!(fault.kind(), Kind::JournalLoginRefused, "{fault:?}");
        assert_eq!(fact(&fault, Fact::Holder), ROLE_WITH_PASSWORD);
        assert!(!format!("{fault:?}").contains("wrong-wrong"), "{fault:?}");
    }
    let nobody = refused(&url("nobody_here")).await;
    assert_eq!(nobody.kind(), Kind::JournalLoginRefused, "{nobody:?}");
    let plain = url(ROLE_WITH_PASSWORD);
    let password = Credentials { password: Some("hush-hush".into()), ..Default::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("*:*:secured:{ROLE_WITH_PASSWORD}:hush-hush")).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let passfile = Credentials { passfile: Some(file.path().into()), ..Default::default() };
    let named = format!("{plain}?passfile={}", file.path().display());
    let in_address = url(&format!("{ROLE_WITH_PASSWORD}:hush-hush"));
    for (url, credentials) in [
        (&plain, &password),
        (&plain, &passfile),
        (&named, &Credentials::default()),
        (&in_address, &Credentials::default()),
    ] {
        let journal = open_as(url, credentials).await.unwrap();
        assert!(!format!("{journal:?} {credentials:?}").contains("hush-hush"));
        journal.close().await;
    }
}

#[tokio::test]
async fn a_role_without_rights_is_named_and_nothing_is_created() {
    let Some(server) = PostgresServer::start() else { return };
    server.sql("CREATE ROLE guest LOGIN");
    let url = format!("postgres://guest@{}/postgres", server.address());
    let before = tables(&server);
    let fault = refused(&url).await;
    assert_eq!(fault.kind(), Kind::JournalNoRights, "{fault:?}");
    assert_eq!(fact(&fault, Fact::Holder), "guest");
    assert_eq!(tables(&server), before);
    // A journal of another role is not readable either.
    crate::support::open(&server.url("budao"), world()).await.close().await;
    let fault = refused(&url).await;
    assert_eq!(fault.kind(), Kind::JournalNoRights, "{fault:?}");
}

#[tokio::test]
async fn a_schema_of_another_program_or_a_newer_one_is_left_as_it_is() {
    let Some(server) = PostgresServer::start() else { return };
    server.sql("CREATE SCHEMA shop; CREATE TABLE shop.goods(n int)");
    server.sql("CREATE SCHEMA meta; CREATE TABLE meta.meta(version int)");
    let before = tables(&server);
    for schema in ["shop", "meta"] {
        let fault = refused(&server.url(schema)).await;
        assert_eq!(fault.kind(), Kind::NotAJournal, "{fault:?}");
        assert!(text::user_text(&fault, Lang::En).contains("schema="), "{fault:?}");
    }
    assert_eq!(tables(&server), before);
    crate::support::open(&server.url("budao"), world()).await.close().await;
    // A newer version that this one can still use, and one that it cannot.
    server.sql("UPDATE budao.meta SET version = 7");
    crate::support::open(&server.url("budao"), world()).await.close().await;
    assert_eq!(
        server.sql("SELECT version FROM budao.meta"),
        "7",
        "an older program changes nothing"
    );
    server.sql("UPDATE budao.meta SET oldest_reader = 7");
    let fault = refused(&server.url("budao")).await;
    assert_eq!(fault.kind(), Kind::JournalNewer, "{fault:?}");
    assert_eq!(fact(&fault, Fact::Version), "7");
}

#[tokio::test]
async fn a_server_whose_settings_break_a_promise_is_refused_by_the_setting() {
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let Some(server) = PostgresServer::start_with(&[(setting, "off")]) else { return };
        let before = tables(&server);
        let fault = refused(&server.url("budao")).await;
        assert_eq!(fault.kind(), Kind::JournalSettingUnsafe, "{fault:?}");
        assert_eq!(fact(&fault, Fact::ConfigKey), setting);
        assert_eq!(tables(&server), before);
    }
}

#[tokio::test]
async fn a_server_older_than_14_is_refused_with_its_version() {
    let Some(server) = PostgresServer::start() else { return };
    let before = tables(&server);
    let version: i32 = server.sql("SHOW server_version_num").parse().unwrap();
    // This server, as it would be if it were older: its answer to the check is changed on the way.
    let proxy = MarkerProxy::start(server.address()).await;
    for (answered, is_old) in [(130_023, true), (140_000, false)] {
        proxy.arm("server_version_num", Action::ReplaceNumber(version, answered));
        let url = server.url_at(proxy.address(), "budao");
        match open_as(&url, &Credentials::default()).await {
            Ok(journal) => journal.close().await,
            Err(fault) => {
                assert_eq!(fault.kind(), Kind::JournalSettingUnsafe, "{fault:?}");
                assert_eq!(fact(&fault, Fact::ConfigKey), "server_version");
                assert_eq!(fact(&fault, Fact::Expected), "14 or newer");
                assert!(is_old, "{fault:?}");
                assert_eq!(tables(&server), before);
                continue;
            }
        }
        assert!(!is_old, "{answered} was accepted");
    }
}

#[tokio::test]
async fn a_database_that_is_not_in_utf_8_is_refused_by_its_encoding() {
    let Some(server) = PostgresServer::start() else { return };
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = encoding.to_lowercase();
        server.sql(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
        ));
        let fault = refused(&format!("postgres://postgres@{}/{name}", server.address())).await;
        assert_eq!(fault.kind(), Kind::JournalSettingUnsafe, "{fault:?}");
        assert_eq!(fact(&fault, Fact::ConfigKey), "server_encoding");
        assert_eq!(fact(&fault, Fact::Received), encoding);
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'budao'";
        let found = server.psql().args(["-d", &name, "-c", schemas]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), "0", "nothing was created");
    }
}

#[tokio::test]
async fn a_setting_of_the_role_counts_and_a_server_that_takes_no_writes_is_read_only() {
    let Some(server) = PostgresServer::start() else { return };
    crate::support::open(&server.url("budao"), world()).await.close().await;
    server.sql("ALTER ROLE postgres SET synchronous_commit = off");
    assert_eq!(refused(&server.url("budao")).await.kind(), Kind::JournalSettingUnsafe);
    server.sql("ALTER ROLE postgres RESET synchronous_commit");
    server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let fault = refused(&server.url("budao")).await;
    assert_eq!(fault.kind(), Kind::JournalReadOnly, "{fault:?}");
    let (credentials, options) = (Credentials::default(), PostgresOptions::default());
    let url = server.url("budao");
    let reader = Postgres::open(&url, Access::ReadOnly, &credentials, world(), options).await;
    reader.unwrap().close().await;
}

#[tokio::test]
async fn a_role_without_a_free_connection_is_refused_at_opening_with_the_reason() {
    let Some(server) = PostgresServer::start() else { return };
    server.sql("CREATE ROLE limited LOGIN CONNECTION LIMIT 0");
    let fault = refused(&format!("postgres://limited@{}/postgres", server.address())).await;
    assert_eq!(fault.kind(), Kind::JournalConnectionsFull, "{fault:?}");
}

#[tokio::test]
async fn a_server_without_a_trusted_certificate_is_refused_when_one_is_asked_for() {
    let Some(server) = PostgresServer::shared() else { return };
    let fault = refused(&format!("{}&sslmode=verify-full", server.url("a"))).await;
    assert_eq!(fault.kind(), Kind::JournalNotTrusted, "{fault:?}");
    let fault = refused(&format!("{}&sslrootcert=/nowhere", server.url("a"))).await;
    assert_eq!(fault.kind(), Kind::JournalNotTrusted, "{fault:?}");
}

#[tokio::test]
async fn a_command_that_only_reads_creates_no_journal() {
    let Some(server) = PostgresServer::start() else { return };
    let before = tables(&server);
    let backend = PostgresBackend::default();
    for access in [Access::Existing, Access::ReadOnly] {
        let opened = backend.open(&server.url("budao"), access, world(), Default::default()).await;
        assert_eq!(opened.unwrap_err().kind(), Kind::NoJournal);
    }
    assert!(!backend.inspect(&server.url("budao")).await.unwrap().exists);
    assert_eq!(tables(&server), before);
    crate::support::open(&server.url("budao"), world()).await.close().await;
    assert!(backend.inspect(&server.url("budao")).await.unwrap().exists);
}

#[tokio::test]
async fn processes_that_open_an_empty_database_at_once_make_one_journal() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let url = server.url(&schema);
    let opened =
        futures::future::join_all((0..4).map(|_| crate::support::open(&url, world()))).await;
    for journal in opened {
        journal.close().await;
    }
    assert_eq!(server.sql(&format!("SELECT count(*), max(version) FROM {schema}.meta")), "1|6");
}

/// A certificate for `localhost` that signs itself, and its key; `None` where OpenSSL is missing.
fn certificate(directory: &std::path::Path) -> Option<(std::path::PathBuf, Vec<u8>)> {
    let (certificate, key) = (directory.join("server.crt"), directory.join("server.key"));
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    let Ok(made) = made else {
        let advice = "NOT TESTED: openssl is missing, so no certificate can be made";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
        return None;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some((certificate, std::fs::read(key).unwrap()))
}

#[tokio::test]
async fn a_certificate_must_fit_the_host_name_and_a_named_authority() {
    let directory = tempfile::tempdir().unwrap();
    let Some((file, key)) = certificate(directory.path()) else { return };
    let Some(server) = PostgresServer::start() else { return };
    server.install("server.crt", &std::fs::read(&file).unwrap());
    server.install("server.key", &key);
    server.sql("ALTER SYSTEM SET ssl = on");
    server.stop();
    server.restart();
    let port = server.address().port();
    let url = |host: &str, rest: &str| format!("postgres://postgres@{host}:{port}/postgres?{rest}");
    let root = format!("sslrootcert={}", file.display());
    let journal = open_as(&url("localhost", &root), &Credentials::default()).await.unwrap();
    let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE a.application_name = 'budao' AND s.ssl";
    assert_eq!(server.sql(encrypted), "t");
    let lease = crate::support::lease(&journal, crate::support::session(1), "writer").await;
    assert_eq!(crate::support::append(&journal, &lease, 0, 2).await, 2);
    journal.close().await;
    for (what, url) in [
        ("an unknown authority", url("localhost", "sslmode=verify-full")),
        ("another host name", url("127.0.0.1", &root)),
    ] {
        let fault = refused(&url).await;
        assert_eq!(fault.kind(), Kind::JournalNotTrusted, "{what}: {fault:?}");
    }
}
