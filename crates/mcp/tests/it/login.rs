//! OAuth logins against an authorization server that does what real ones get wrong.

use std::{path::Path, sync::Arc};

use budao_core::{
    Lang,
    fault::{Fact, Fault, Kind, text},
};
use budao_mcp::{
    DeviceLogin, LoginFlow, LoginState, LoginStatus, LoginStore, LoopbackListener, McpServerConfig,
    ServerEnvironment, ServerSet,
};
use budao_testkit::oauth::{OauthBehaviour, OauthServer};
use serde_json::json;

use crate::common::{call, done, failed, is_ready, limits, quick, until, variables, within, world};

const REDIRECT: &str = "http://127.0.0.1:9/callback";

fn config(url: &str) -> McpServerConfig {
    let mut config = McpServerConfig::http("remote", url);
    config.reconnect = quick();
    config
}

fn environment(logins: &Arc<LoginStore>) -> ServerEnvironment {
    let mut environment = ServerEnvironment::new(&variables(), &world(), &limits());
    environment.logins = Some(Arc::clone(logins));
    environment
}

async fn log_in_as(
    server: &OauthServer,
    config: &McpServerConfig,
    logins: &Arc<LoginStore>,
) -> Result<LoginStatus, Fault> {
    let flow = within(LoginFlow::begin(config, &environment(logins), REDIRECT)).await?;
    let back = within(server.browse(flow.url())).await;
    within(flow.finish(&back)).await
}

async fn log_in(server: &OauthServer, logins: &Arc<LoginStore>) -> LoginStatus {
    log_in_as(server, &config(&server.mcp()), logins).await.unwrap()
}

async fn login_refused(behaviour: OauthBehaviour) -> (OauthServer, Fault) {
    let server = OauthServer::start(behaviour).await;
    let fault = log_in_as(&server, &config(&server.mcp()), &Arc::default()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::McpLoginFailed, "{fault}");
    assert_eq!(fault.detail().text(Fact::McpServer), Some("remote"));
    (server, fault)
}

fn reason(fault: &Fault) -> &str {
    fault.detail().text(Fact::Reason).unwrap()
}

fn open(url: &str, logins: &Arc<LoginStore>) -> ServerSet {
    ServerSet::open_in([config(url)], &environment(logins)).unwrap()
}

async fn connect(server: &OauthServer, logins: &Arc<LoginStore>) -> ServerSet {
    let set = open(&server.mcp(), logins);
    within(set.get("remote").unwrap().ready()).await.unwrap();
    set
}

async fn echo(set: &ServerSet) {
    assert_eq!(done(call(set.get("remote").unwrap(), "echo", json!({})).await), json!("fine"));
}

fn in_file(folder: &Path) -> Arc<LoginStore> {
    Arc::new(LoginStore::open(folder.join("logins.json")).unwrap())
}

#[tokio::test]
async fn a_login_in_a_browser_opens_the_server() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    let set = open(&server.mcp(), &logins);
    let fault = within(set.get("remote").unwrap().ready()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::McpLoginNeeded, "{fault}");
    let told = text::user_text(&fault, Lang::En);
    assert!(told.contains("budao mcp login remote"), "{told}");
    assert!(text::user_text(&fault, Lang::Zh).contains("budao mcp login remote"));
    within(set.shutdown()).await;

    let status = log_in(&server, &logins).await;
    assert_eq!((status.state, status.renews), (LoginState::Valid, true));
    assert_eq!(
        (status.issuer.as_str(), status.scopes),
        (server.url.as_str(), vec!["read".to_owned()])
    );
    let set = connect(&server, &logins).await;
    echo(&set).await;
    within(set.shutdown()).await;
    let ledger = server.ledger();
    assert_eq!(ledger.registrations[0]["redirect_uris"], json!([REDIRECT]));
    assert_eq!(ledger.registrations[0]["token_endpoint_auth_method"], "none");
    let asked = &ledger.authorizations[0];
    assert_eq!(
        (asked["resource"].as_str(), asked["code_challenge_method"].as_str()),
        (server.mcp().as_str(), "S256")
    );
    assert_eq!(ledger.token_forms[0]["resource"], server.mcp());
}

#[tokio::test]
async fn the_browser_returns_to_a_port_of_this_machine_and_other_requests_are_refused() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let (logins, world) = (Arc::default(), world());
    let listener = LoopbackListener::bind(0).await.unwrap();
    let config = config(&server.mcp());
    let flow = LoginFlow::begin(&config, &environment(&logins), listener.redirect()).await.unwrap();
    let state = flow.state().to_owned();
    let back = server.browse(flow.url()).await;
    let other = listener.redirect().to_owned() + "?code=evil&state=guessed";
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let visit = async {
        let refused = client.get(&other).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 404);
        client.get(&back).send().await.unwrap().text().await.unwrap()
    };
    let answer = listener.answer(&state, "You may close this page.", &world);
    let (page, answer) = within(async { tokio::join!(visit, answer) }).await;
    assert_eq!(page, "You may close this page.");
    assert_eq!(flow.finish(&answer).await.unwrap().state, LoginState::Valid);
}

#[tokio::test]
async fn a_pasted_code_is_enough_and_a_pasted_answer_of_another_login_is_refused() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    let config = config(&server.mcp());
    let environment = environment(&logins);
    let begin = || LoginFlow::begin(&config, &environment, REDIRECT);
    let flow = begin().await.unwrap();
    let back = server.browse(flow.url()).await;
    let code = back.split("code=").nth(1).unwrap().split('&').next().unwrap();
    assert_eq!(flow.finish(&format!(" {code}\n")).await.unwrap().state, LoginState::Valid);
    for (pasted, why) in [
        ("http://127.0.0.1:9/callback?code=a&state=b", "another login"),
        ("code=a", "another login"),
        ("", "no code"),
        ("http://127.0.0.1:9/callback?", "another login"),
    ] {
        let fault = begin().await.unwrap().finish(pasted).await.unwrap_err();
        assert!(reason(&fault).contains(why), "{pasted}: {fault:?}");
    }
    let flow = begin().await.unwrap();
    let denied =
        format!("{REDIRECT}?error=access_denied&state={}&iss={}", flow.state(), server.url);
    let fault = flow.finish(&denied).await.unwrap_err();
    assert!(reason(&fault).contains("access_denied"), "{fault:?}");
}

#[tokio::test]
async fn a_login_on_another_device_waits_for_the_person() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    let login = DeviceLogin::begin(&config(&server.mcp()), &environment(&logins)).await.unwrap();
    assert_eq!(login.user_code(), "ABCD-EFGH");
    assert_eq!(login.url(), format!("{}/activate", server.url));
    assert_eq!(within(login.finish()).await.unwrap().state, LoginState::Valid);
    let set = connect(&server, &logins).await;
    echo(&set).await;
    within(set.shutdown()).await;
}

#[tokio::test]
async fn a_client_id_is_given_or_a_document_or_registered() {
    let cases = [
        (OauthBehaviour { no_registration: true, ..OauthBehaviour::default() }, "given"),
        (
            OauthBehaviour { client_documents: true, ..OauthBehaviour::default() },
            "https://budao.example/client.json",
        ),
        (OauthBehaviour::default(), "registered-client"),
    ];
    for (behaviour, id) in cases {
        let server = OauthServer::start(behaviour).await;
        let mut config = config(&server.mcp());
        config.oauth.client_metadata_url = Some("https://budao.example/client.json".into());
        config.oauth.client_id = (id == "given").then(|| id.to_owned());
        log_in_as(&server, &config, &Arc::default()).await.unwrap();
        assert_eq!(server.ledger().authorizations[0]["client_id"], id);
    }
    let behaviour = OauthBehaviour { no_registration: true, ..OauthBehaviour::default() };
    let (_, fault) = login_refused(behaviour).await;
    assert!(reason(&fault).contains("oauth.client_id"), "{fault:?}");
}

#[tokio::test]
async fn a_server_from_before_resource_metadata_is_its_own_authorization_server() {
    let behaviour = OauthBehaviour { no_resource_metadata: true, ..OauthBehaviour::default() };
    let server = OauthServer::start(behaviour).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = connect(&server, &logins).await;
    echo(&set).await;
    within(set.shutdown()).await;
}

#[tokio::test]
async fn a_resource_that_is_another_service_is_refused_before_anything_is_asked() {
    let behaviour = OauthBehaviour {
        wrong_resource: Some("https://bank.example/api".into()),
        ..OauthBehaviour::default()
    };
    let (server, fault) = login_refused(behaviour).await;
    assert!(reason(&fault).contains("bank.example"), "{fault:?}");
    assert!(server.ledger().registrations.is_empty());
}

#[tokio::test]
async fn an_authorization_server_that_is_another_one_is_refused() {
    let elsewhere = || Some("https://evil.example".to_owned());
    let behaviour = OauthBehaviour { wrong_issuer: elsewhere(), ..OauthBehaviour::default() };
    let (server, fault) = login_refused(behaviour).await;
    assert!(reason(&fault).contains("evil.example") && server.ledger().registrations.is_empty());
    for behaviour in [
        OauthBehaviour { wrong_iss: elsewhere(), ..OauthBehaviour::default() },
        OauthBehaviour { no_iss: true, ..OauthBehaviour::default() },
    ] {
        let (server, fault) = login_refused(behaviour).await;
        assert!(reason(&fault).contains("authorization server"), "{fault:?}");
        assert_eq!(server.grants("authorization_code"), 0, "the code goes nowhere");
    }
}

#[tokio::test]
async fn an_authorization_server_without_pkce_is_refused() {
    let behaviour = OauthBehaviour { no_pkce: true, ..OauthBehaviour::default() };
    let (_, fault) = login_refused(behaviour).await;
    assert!(reason(&fault).contains("PKCE"), "{fault:?}");
}

#[tokio::test]
async fn a_login_that_is_redirected_to_another_host_sends_no_code_there() {
    let thief = OauthServer::start(OauthBehaviour::default()).await;
    let behaviour = OauthBehaviour {
        token_redirect: Some(format!("{}/token", thief.url)),
        ..OauthBehaviour::default()
    };
    let (server, fault) = login_refused(behaviour).await;
    assert!(reason(&fault).contains("another address"), "{fault:?}");
    assert_eq!((server.grants("authorization_code"), thief.ledger().token_forms.len()), (1, 0));
    // A server on the Internet would have to be asked without encryption.
    let behaviour = OauthBehaviour {
        token_endpoint: Some("http://login.example/token".into()),
        ..OauthBehaviour::default()
    };
    let (_, fault) = login_refused(behaviour).await;
    assert!(reason(&fault).contains("not encrypted"), "{fault:?}");
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_for_all_who_wait() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let folder = tempfile::tempdir().unwrap();
    log_in(&server, &in_file(folder.path())).await;
    // Two processes with a store of their own each.
    let sets = [
        connect(&server, &in_file(folder.path())).await,
        connect(&server, &in_file(folder.path())).await,
    ];
    server.expire_tokens();
    let calls = sets.iter().flat_map(|set| (0..10).map(move |_| echo(set)));
    within(futures::future::join_all(calls)).await;
    assert_eq!(server.grants("refresh_token"), 1, "each refresh token works once");
    for set in &sets {
        echo(set).await;
        within(set.shutdown()).await;
    }
}

#[tokio::test]
async fn a_server_without_refresh_rotation_keeps_its_refresh_token() {
    let behaviour = OauthBehaviour { no_rotation: true, ..OauthBehaviour::default() };
    let server = OauthServer::start(behaviour).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    for round in 1..=3 {
        // A new start each time: a token that is refused right after its renewal is not renewed again.
        let set = connect(&server, &logins).await;
        server.expire_tokens();
        echo(&set).await;
        assert_eq!(server.grants("refresh_token"), round);
        within(set.shutdown()).await;
    }
}

#[tokio::test]
async fn a_clock_that_is_wrong_costs_one_renewal_and_not_one_for_each_call() {
    // The server says that its tokens live no time at all, and accepts them all the same.
    for odd in [json!(0), json!("0"), json!(-60), json!(null)] {
        let behaviour =
            OauthBehaviour { expires_in: Some(odd.clone()), ..OauthBehaviour::default() };
        let server = OauthServer::start(behaviour).await;
        let logins = Arc::default();
        log_in(&server, &logins).await;
        let set = connect(&server, &logins).await;
        for _ in 0..5 {
            echo(&set).await;
        }
        assert!(server.grants("refresh_token") <= 1, "{odd}: {}", server.grants("refresh_token"));
        within(set.shutdown()).await;
    }
}

#[tokio::test]
async fn a_token_that_expires_in_the_middle_of_a_stream_is_renewed_and_the_call_ends_well() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = connect(&server, &logins).await;
    let outcome = call(set.get("remote").unwrap(), "stream", json!({})).await;
    assert_eq!(done(outcome), json!("resumed"));
    assert_eq!(server.grants("refresh_token"), 1);
    let calls = |(method, _): &&(String, Option<String>)| method == "tools/call";
    let streamed = server.ledger().requests.iter().filter(calls).count();
    assert_eq!(streamed, 1, "the tool ran once");
    within(set.shutdown()).await;
}

#[tokio::test]
async fn a_token_for_another_audience_is_reported_and_not_renewed_endlessly() {
    let behaviour = OauthBehaviour {
        audience: Some("https://other.example".into()),
        ..OauthBehaviour::default()
    };
    let server = OauthServer::start(behaviour).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = open(&server.mcp(), &logins);
    let remote = set.get("remote").unwrap();
    let fault = within(remote.ready()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::McpLoginNeeded, "{fault}");
    // The supervisor tries again; the authorization server is left alone.
    let tries = || server.ledger().requests.len();
    within(async {
        while tries() < 12 {
            remote.restart();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.grants("refresh_token"), 1);
    within(set.shutdown()).await;
}

#[tokio::test]
async fn a_token_is_never_sent_to_another_url_under_the_same_name() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let other = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = open(&other.mcp(), &logins);
    let fault = within(set.get("remote").unwrap().ready()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::McpLoginNeeded, "{fault}");
    assert!(other.ledger().requests.iter().all(|(_, token)| token.is_none()));
    within(set.shutdown()).await;
}

#[tokio::test]
async fn an_expired_login_is_reported_with_its_command_and_a_new_login_works() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let logins = in_file(folder.path());
    log_in(&server, &logins).await;
    let set = connect(&server, &logins).await;
    let remote = set.get("remote").unwrap();
    server.revoke_all();
    let fault = failed(call(remote, "echo", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::McpLoginNeeded, "{fault}");
    assert_eq!(fault.detail().text(Fact::AuthAction), Some("login_expired"));
    assert_eq!(fault.detail().text(Fact::Command), Some("budao mcp login remote"));
    assert!(!fault.is_outcome_unknown(), "the call did not run");
    let shown = format!("{fault:?} {logins:?} {remote:?}");
    assert!(!shown.contains("token-number"), "{shown}");
    let now = world().clock.now();
    let config = config(&server.mcp());
    assert_eq!(logins.status(&config, now).unwrap().state, LoginState::Expired);
    // Another process logs in; this one finds the file changed.
    log_in(&server, &in_file(folder.path())).await;
    remote.restart();
    until(remote, is_ready).await;
    echo(&set).await;
    within(set.shutdown()).await;
}

#[tokio::test]
async fn more_rights_are_asked_for_at_the_next_login() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = connect(&server, &logins).await;
    let remote = set.get("remote").unwrap();
    let fault = failed(call(remote, "admin", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::McpLoginNeeded, "{fault}");
    assert_eq!(fault.detail().text(Fact::AuthAction), Some("more_rights"));
    echo(&set).await;
    let config = config(&server.mcp());
    let status = logins.status(&config, world().clock.now()).unwrap();
    assert_eq!(status.state, LoginState::MoreRights);
    let status = log_in(&server, &logins).await;
    assert_eq!(
        (status.state, status.scopes),
        (LoginState::Valid, vec!["read".into(), "admin".into()])
    );
    assert_eq!(done(call(remote, "admin", json!({})).await), json!("fine"));
    within(set.shutdown()).await;
}

#[tokio::test]
async fn a_server_that_repeats_the_token_leaks_it_into_no_result() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = connect(&server, &logins).await;
    let said = done(call(set.get("remote").unwrap(), "leak", json!({})).await);
    assert_eq!(said, json!("your token is [token]"));
    within(set.shutdown()).await;
}

#[tokio::test]
async fn an_authorization_server_in_trouble_is_no_expired_login() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins = Arc::default();
    log_in(&server, &logins).await;
    let set = connect(&server, &logins).await;
    server.expire_tokens();
    server.ledger().token_status = Some(503);
    let fault = failed(call(set.get("remote").unwrap(), "echo", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::McpServerFailed, "{fault}");
    server.ledger().token_status = None;
    echo(&set).await;
    within(set.shutdown()).await;
}

#[tokio::test]
async fn a_logout_revokes_the_login_and_forgets_it() {
    let server = OauthServer::start(OauthBehaviour::default()).await;
    let logins: Arc<LoginStore> = Arc::default();
    log_in(&server, &logins).await;
    let config = config(&server.mcp());
    assert!(within(logins.log_out(&config, &world())).await);
    assert_eq!(logins.status(&config, world().clock.now()), None);
    assert_eq!(server.ledger().revoked, ["refresh-token-number-1"]);
    assert!(!within(logins.log_out(&config, &world())).await);
}
