//! Wake-ups by PostgreSQL's own `NOTIFY`, on two connections of its own.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::fault::{Fault, Operation};
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

use crate::{
    address::Address,
    connection::{self, Connection, Parameters},
    errors,
    pool::PATIENCE,
    wake::WakeTransport,
};

/// Sends and receives notifications of one journal.
#[derive(Debug)]
pub(crate) struct NotifyTransport {
    address: Arc<Address>,
    channel: String,
    sender: Mutex<Option<Connection>>,
    listener: Mutex<Option<Listener>>,
}

#[derive(Debug)]
struct Listener {
    messages: mpsc::Receiver<String>,
    _connection: Connection,
}

impl NotifyTransport {
    pub(crate) fn new(address: Arc<Address>, journal: Uuid) -> Self {
        let channel = format!("budao_{}", journal.simple());
        Self { address, channel, sender: Mutex::default(), listener: Mutex::default() }
    }

    async fn listen(&self) -> Result<Listener, Fault> {
        let (connection, messages) = connection::connect(&self.address).await?;
        let listening = connection.execute(&format!("LISTEN {}", self.channel)).await;
        listening.map_err(|e| e.into_fault(&self.address, Operation::FollowRecords))?;
        Ok(Listener { messages, _connection: connection })
    }
}

#[async_trait]
impl WakeTransport for NotifyTransport {
    async fn send(&self, message: String) -> Result<(), Fault> {
        let mut place = self.sender.lock().await;
        let connection = match place.take().filter(|connection| !connection.is_closed()) {
            Some(connection) => connection,
            None => connection::connect(&self.address).await?.0,
        };
        let parameters: Parameters<'_> = &[&self.channel, &message];
        let sending = connection.query("SELECT pg_notify($1, $2)", parameters);
        let operation = Operation::FollowRecords;
        match tokio::time::timeout(PATIENCE, sending).await {
            Ok(Ok(_)) => *place = Some(connection),
            Ok(Err(failed)) => return Err(failed.into_fault(&self.address, operation)),
            Err(_) => return Err(errors::busy(&self.address, operation, "no answer in time")),
        }
        Ok(())
    }

    async fn receive(&self) -> Result<Option<String>, Fault> {
        let mut place = self.listener.lock().await;
        let Some(listener) = place.as_mut() else {
            *place = Some(self.listen().await?);
            // What happened before the first notification must be looked for.
            return Ok(None);
        };
        match listener.messages.recv().await {
            Some(message) => Ok(Some(message)),
            None => {
                *place = None;
                Ok(None)
            }
        }
    }
}
