//! Text files through the editor, so that an engine sees changes that are not saved, and the editor sees its writes.

use std::path::Path;

use agent_client_protocol::{
    Client, ErrorCode,
    v1::{
        ConnectionTo,
        schema::{ReadTextFileRequest, WriteTextFileRequest},
    },
};
use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
};

use crate::project::EditorCapabilities;

/// The files of an editor, for one session. Paths are absolute.
#[derive(Clone, Debug)]
pub struct EditorFiles {
    connection: ConnectionTo<Client>,
    session: String,
    capabilities: EditorCapabilities,
}

impl EditorFiles {
    /// `None` if the editor offers neither to read nor to write files.
    pub(crate) fn new(
        connection: ConnectionTo<Client>,
        session: SessionId,
        capabilities: EditorCapabilities,
    ) -> Option<Self> {
        let session = session.to_string();
        let is_offered = capabilities.reads_files || capabilities.writes_files;
        is_offered.then_some(Self { connection, session, capabilities })
    }

    /// Reads the text of a file from the editor, unsaved changes included. `None` if the editor returned an error.
    pub async fn read(&self, path: &Path) -> Option<String> {
        if !self.capabilities.reads_files {
            return None;
        }
        let request = ReadTextFileRequest::new(self.session.clone(), path);
        match self.connection.send_request(request).block_task().await {
            Ok(response) => Some(response.content),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "editor did not read a file");
                None
            }
        }
    }

    /// Lets the editor replace the text of a file and save it. Returns false if the editor does not support that.
    ///
    /// # Errors
    /// The editor refused.
    pub async fn write(&self, path: &Path, text: &str) -> Result<bool, Fault> {
        if !self.capabilities.writes_files {
            return Ok(false);
        }
        let request = WriteTextFileRequest::new(self.session.clone(), path, text);
        match self.connection.send_request(request).block_task().await {
            Ok(_) => Ok(true),
            Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(false),
            Err(error) => Err(Fault::new(Kind::FilePermission, Operation::WriteFile)
                .with(Fact::Path, path.display().to_string())
                .with_cause(format!("the editor: {}", error.message))),
        }
    }
}
