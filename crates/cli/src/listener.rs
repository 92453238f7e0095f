//! Binds the address of a server.

use std::{io, net::SocketAddr};

use budao_core::{
    Fault, Kind,
    fault::{Advice, Fact, Operation},
};
use tokio::net::TcpListener;

use crate::port_owner;

/// Binds the address. If it is in use, the fault names the process that listens there.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address).await.map_err(|error| {
        let fault = match error.kind() {
            io::ErrorKind::AddrInUse => Fault::new(Kind::AddressInUse, Operation::StartServer)
                .with(Fact::Endpoint, address.to_string())
                .with_cause(port_owner::listener(address).map_or_else(
                    || "the listening process is unknown".to_owned(),
                    |who| format!("in use by {who}"),
                ))
                .advise_user([Advice::Custom(format!(
                    "To use a free port: --listen {}:0",
                    address.ip()
                ))]),
            _ => Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "--listen")
                .with(Fact::Expected, "an address of this machine")
                .with(Fact::Received, address.to_string()),
        };
        fault.caused_by(&error)
    })
}
