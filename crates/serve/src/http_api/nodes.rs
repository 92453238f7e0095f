//! The servers of the journal over HTTP.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use budao_core::Fault;
use serde::Serialize;

use super::{
    middleware::{Caller, fault_response},
    stats::require_operator,
};
use crate::{nodes::NodeView, problem::Problem, server::Server};

/// The servers of the journal.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeList {
    /// Every server that has not left, ordered by name; servers that are gone are listed for ten minutes.
    nodes: Vec<NodeView>,
}

/// Lists the servers that share the journal: alive, draining or gone, with load and version. For operators only.
#[utoipa::path(
    get,
    path = "/api/nodes",
    responses(
        (status = 200, description = "The servers", body = NodeList),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn nodes(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    match list_nodes(&server, &caller) {
        Ok(nodes) => Json(nodes).into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

fn list_nodes(server: &Server, caller: &Caller) -> Result<NodeList, Fault> {
    require_operator(caller, "/api/nodes")?;
    let nodes = server.config.node.as_ref().map(|node| node.nodes()).unwrap_or_default();
    Ok(NodeList { nodes: nodes.iter().map(NodeView::from).collect() })
}
