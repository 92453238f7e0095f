//! File tools with an editor that has documents open: unsaved text is read, and writes go through the editor.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
    tool::Outcome,
};
use budao_tools::{
    Toolbox,
    builtin::{self, BuiltinOptions, EditorDocuments, Workspace},
};
use serde_json::json;

use crate::builtin::support::Fixture;

/// An editor with open documents.
#[derive(Debug, Default)]
struct FakeEditor {
    open: Mutex<BTreeMap<PathBuf, String>>,
    written: Mutex<Vec<(PathBuf, String)>>,
    /// The editor does not write files at all.
    is_read_only: bool,
    /// The editor refuses to write files of this name.
    refuses: Option<&'static str>,
}

#[async_trait]
impl EditorDocuments for FakeEditor {
    async fn read(&self, path: &Path) -> Option<String> {
        self.open.lock().unwrap().get(path).cloned()
    }

    async fn write(&self, path: &Path, text: &str) -> Result<bool, Fault> {
        if self.is_read_only {
            return Ok(false);
        }
        if self.refuses.is_some_and(|name| path.ends_with(name)) {
            return Err(Fault::new(Kind::FilePermission, Operation::WriteFile)
                .with(Fact::Path, path.display().to_string()));
        }
        self.written.lock().unwrap().push((path.to_owned(), text.to_owned()));
        self.open.lock().unwrap().insert(path.to_owned(), text.to_owned());
        Ok(true)
    }
}

/// A workspace whose files are open in this editor.
fn with(editor: FakeEditor) -> (Fixture, Arc<FakeEditor>) {
    let mut fixture = Fixture::with(BuiltinOptions::default());
    let editor = Arc::new(editor);
    let workspace = Workspace::open(fixture.folder.path()).unwrap();
    let workspace = workspace.with_documents(Some(Arc::clone(&editor) as _));
    let tools = builtin::tools(&workspace, &BuiltinOptions::default());
    fixture.toolbox = Toolbox::builder().build().with_all(tools).unwrap();
    (fixture, editor)
}

fn show(fixture: &Fixture, editor: &FakeEditor, name: &str, text: &str) {
    let path = fixture.folder.path().canonicalize().unwrap().join(name);
    editor.open.lock().unwrap().insert(path, text.to_owned());
}

fn written(editor: &FakeEditor) -> Vec<(String, String)> {
    let written = editor.written.lock().unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    written.iter().map(|(path, text)| (name(path), text.clone())).collect()
}

#[tokio::test]
async fn unsaved_text_is_read_and_edited_and_the_editor_writes_it() {
    let (fixture, editor) = with(FakeEditor::default());
    fixture.write("a.txt", "saved\n");
    show(&fixture, &editor, "a.txt", "unsaved\n");
    let read = fixture.done("fs_read", json!({"path": "a.txt"})).await;
    assert_eq!(read["content"], "unsaved\n");
    let edit = json!({"path": "a.txt", "old_string": "unsaved", "new_string": "edited"});
    fixture.done("fs_edit", edit).await;
    fixture.done("fs_write", json!({"path": "a.txt", "content": "whole\n"})).await;
    fixture.done("fs_write", json!({"path": "new/b.txt", "content": "b"})).await;
    let wanted = [("a.txt", "edited\n"), ("a.txt", "whole\n"), ("b.txt", "b")];
    assert_eq!(written(&editor), wanted.map(|(name, text)| (name.to_owned(), text.to_owned())));
    assert_eq!(fixture.read("a.txt"), "saved\n", "saving is the editor's part");
}

#[tokio::test]
async fn a_document_that_changed_since_it_was_read_is_not_overwritten() {
    let (fixture, editor) = with(FakeEditor::default());
    fixture.write("a.txt", "saved\n");
    fixture.done("fs_read", json!({"path": "a.txt"})).await;
    show(&fixture, &editor, "a.txt", "typed meanwhile\n");
    let Outcome::Failed(failed) =
        fixture.call("fs_write", json!({"path": "a.txt", "content": "new"})).await
    else {
        panic!("the user's text would be lost")
    };
    assert_eq!(failed.fault.kind(), Kind::FileChanged);
    assert_eq!(written(&editor), []);
}

#[tokio::test]
async fn line_ends_of_the_file_are_kept_and_other_character_sets_go_to_the_disk() {
    let (fixture, editor) = with(FakeEditor::default());
    fixture.write("dos.txt", "one\r\ntwo\r\n");
    show(&fixture, &editor, "dos.txt", "one\ntwo\nthree\n");
    let read = fixture.done("fs_read", json!({"path": "dos.txt"})).await;
    assert_eq!(read["content"], "one\ntwo\nthree\n");
    let edit = json!({"path": "dos.txt", "old_string": "three", "new_string": "3"});
    fixture.done("fs_edit", edit).await;
    assert_eq!(written(&editor), [("dos.txt".to_owned(), "one\r\ntwo\r\n3\r\n".to_owned())]);
    fixture.write("marked.txt", b"\xef\xbb\xbfone\n");
    let edit = json!({"path": "marked.txt", "old_string": "one", "new_string": "two"});
    fixture.done("fs_edit", edit).await;
    assert_eq!(std::fs::read(fixture.path("marked.txt")).unwrap(), b"\xef\xbb\xbftwo\n");
    assert_eq!(written(&editor).len(), 1);
}

#[tokio::test]
async fn without_an_offer_to_write_the_unsaved_text_is_edited_on_the_disk() {
    let (fixture, editor) = with(FakeEditor { is_read_only: true, ..FakeEditor::default() });
    fixture.write("a.txt", "saved\n");
    show(&fixture, &editor, "a.txt", "unsaved\n");
    let edit = json!({"path": "a.txt", "old_string": "unsaved", "new_string": "edited"});
    fixture.done("fs_edit", edit).await;
    assert_eq!(fixture.read("a.txt"), "edited\n");
}

#[tokio::test]
async fn if_the_editor_refuses_one_of_several_files_none_is_changed() {
    let (fixture, editor) = with(FakeEditor { refuses: Some("b.txt"), ..FakeEditor::default() });
    fixture.write("a.txt", "a\n");
    fixture.write("b.txt", "b\n");
    let edit = |path: &str| json!({"path": path, "find": path[..1], "replace": "x"});
    let edits = json!({"edits": [edit("a.txt"), edit("b.txt")]});
    let Outcome::Failed(failed) = fixture.call("fs_multi_edit", edits).await else {
        panic!("the editor refused")
    };
    assert_eq!(failed.fault.kind(), Kind::FilePermission);
    let last: BTreeMap<String, String> = written(&editor).into_iter().collect();
    assert_eq!(last, [("a.txt".to_owned(), "a\n".to_owned())].into());
    assert_eq!((fixture.read("a.txt"), fixture.read("b.txt")), ("a\n".into(), "b\n".into()));
}

#[tokio::test]
async fn an_editor_is_never_asked_for_a_file_outside_of_the_workspace() {
    let (fixture, editor) = with(FakeEditor::default());
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), fixture.path("link")).unwrap();
    let path = outside.path().join("secret");
    for path in [path.to_str().unwrap(), "../secret", "link"] {
        for (tool, arguments) in [
            ("fs_read", json!({"path": path})),
            ("fs_write", json!({"path": path, "content": "x"})),
            ("fs_edit", json!({"path": path, "old_string": "s", "new_string": "x"})),
        ] {
            let outcome = fixture.call(tool, arguments).await;
            assert!(matches!(outcome, Outcome::Failed(_)), "{tool} {path}");
        }
    }
    assert_eq!(written(&editor), []);
}
