//! Logins of the scenarios `auth/*`, without a person: the authorization server of the suite agrees at once.

use std::sync::Arc;

use budao_core::fault::{Fault, Kind};
use budao_mcp::{LoginFlow, McpServerConfig, ServerEnvironment, ServerHandle, ServerSet};
use reqwest::{Url, header::LOCATION, redirect::Policy};
use serde_json::Value;

use crate::{START, call, calls};

/// The most logins of one run. A person would not log in again and again either.
const LOGINS_MAX: usize = 3;

/// The address to which a browser would return. Nobody listens there: the redirect is read, not followed.
const REDIRECT: &str = "http://127.0.0.1:9/callback";

/// The client-id metadata document that the suite expects.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// Sets the client that the scenario has registered, if it names one.
pub(crate) fn configure(config: &mut McpServerConfig, context: &Value) {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    config.oauth.client_metadata_url = Some(DOCUMENT.to_owned());
    config.oauth.client_id = text("client_id");
    config.oauth.client_secret = text("client_secret").map(Into::into);
}

/// Calls every tool twice, and logs in whenever the server wants a login.
pub(crate) async fn run(
    scenario: &str,
    context: &Value,
    config: McpServerConfig,
    mut environment: ServerEnvironment,
) -> Result<(), String> {
    environment.logins = Some(Arc::default());
    let mut failure = None;
    for logins in 0..=LOGINS_MAX {
        let Err(fault) = use_server(scenario, context, &config, &environment).await else {
            return Ok(());
        };
        let is_login = fault.kind() == Kind::McpLoginNeeded;
        failure = Some(fault.to_string());
        if !is_login || logins == LOGINS_MAX {
            break;
        }
        log_in(&config, &environment).await?;
    }
    Err(failure.unwrap_or_default())
}

async fn use_server(
    scenario: &str,
    context: &Value,
    config: &McpServerConfig,
    environment: &ServerEnvironment,
) -> Result<(), Fault> {
    let servers = ServerSet::open_in([config.clone()], environment)?;
    let Some(server) = servers.get(&config.name) else { return Ok(()) };
    let used = async {
        server.ready().await?;
        // The second call of a tool finds what changed after the first.
        for _ in 0..2 {
            call_all(scenario, context, server).await?;
        }
        Ok(())
    };
    let used = tokio::time::timeout(START, used).await;
    servers.shutdown().await;
    used.unwrap_or(Ok(()))
}

async fn call_all(scenario: &str, context: &Value, server: &ServerHandle) -> Result<(), Fault> {
    for (tool, arguments) in calls(scenario, context, server) {
        if let Some(fault) = call(server, &tool, &arguments).await {
            return Err(fault);
        }
    }
    Ok(())
}

/// Opens the address of a login as a browser does, and ends the login with the address to which the browser is sent.
async fn log_in(config: &McpServerConfig, environment: &ServerEnvironment) -> Result<(), String> {
    let failed = |fault: Fault| fault.to_string();
    let flow = LoginFlow::begin(config, environment, REDIRECT).await.map_err(failed)?;
    let client = reqwest::Client::builder().redirect(Policy::none()).no_proxy().build();
    let client = client.map_err(|error| error.to_string())?;
    let url = Url::parse(flow.url()).map_err(|error| error.to_string())?;
    let answer = client.get(url).send().await.map_err(|error| error.to_string())?;
    let back = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let back = back.ok_or("the authorization server does not redirect")?;
    flow.finish(back).await.map(drop).map_err(failed)
}
