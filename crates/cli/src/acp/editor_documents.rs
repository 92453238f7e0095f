//! The file tools' view of an editor's documents.

use std::path::Path;

use async_trait::async_trait;
use budao_acp::EditorFiles;
use budao_core::Fault;
use budao_tools::builtin::EditorDocuments;

/// Documents of the editor that has the session open.
#[derive(Debug)]
pub(super) struct SessionDocuments(pub(super) EditorFiles);

#[async_trait]
impl EditorDocuments for SessionDocuments {
    async fn read(&self, path: &Path) -> Option<String> {
        self.0.read(path).await
    }

    async fn write(&self, path: &Path, text: &str) -> Result<bool, Fault> {
        self.0.write(path, text).await
    }
}
